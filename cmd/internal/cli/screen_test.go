package cli_test

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/tidwall/gjson"

	"nexus.internal/cmd/internal/cli"
	"nexus.internal/fixtures"
)

// hostile is all that a model, a tool or a file's name may hold, as JSON can have it.
var hostile = sync.OnceValue(func() string {
	all := fixtures.Hostile()
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(all)) {
		text.WriteString(all[name])
	}
	return strings.ToValidUTF8(text.String(), "\ufffd")
})

// Nothing that a server, a model or a tool says acts on the terminal, in what a verb
// prints for people, in its JSON and in its errors; and none makes a line of ours.
func TestNothingActsOnTheTerminal(t *testing.T) {
	bad, err := json.Marshal(hostile())
	if err != nil {
		t.Fatal(err)
	}
	text := string(bad) // nothing is escaped that need not be
	fill := func(result string) string { return strings.ReplaceAll(result, "BAD", text) }
	results := map[string]string{
		"list_agents": `{"agents":[{"agent_id":"a","state":BAD,"model":BAD,"cwd":BAD,"last_error":BAD,"request_id":BAD,
			"pending":[{"request_id":"r-1","tool_name":BAD,"input":{"command":BAD},"reason":BAD,"deadline":BAD}]}]}`,
		"list_sessions": `{"total":1,"sessions":[{"name":BAD,"provenance":BAD,"model":BAD,"cwd":BAD,"damaged":BAD}]}`,
		"get_messages": `{"total":2,"messages":[{"role":"assistant","content":BAD,"tool_calls":[{"id":"1","name":BAD,"input":{"command":BAD}}]},
			{"role":"tool","tool_name":BAD,"content":BAD,"truncated":true,"size":1,"file":BAD}]}`,
		"get_context": `{"provider":BAD,"model":BAD,"permission_level":BAD,"cwd":BAD}`,
		"get_tokens":  `{}`,
		"list_keys":   `{"keys":[{"key_id":BAD,"scope":BAD,"name":BAD,"agent_id":BAD}]}`,
		"run_plan":    `{"plan_run_id":BAD,"status":"failed","tasks":[{"task_id":BAD,"status":BAD,"reason":BAD}]}`,
	}
	serve := func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/events") {
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprintf(w, "id: 1\nevent: text\ndata: {\"type\":\"text\",\"text\":%s}\n\nevent: end\ndata: {\"type\":\"end\",\"reason\":\"destroyed\"}\n\n", text)
			return
		}
		body, _ := io.ReadAll(r.Body)
		method := gjson.GetBytes(body, "method").Str
		result, ok := results[method]
		if !ok {
			fmt.Fprint(w, fill(`{"jsonrpc":"2.0","id":1,"error":{"code":-32000,"message":BAD,"data":{"type":"X","details":BAD,"recovery_suggestions":[]}}}`))
			return
		}
		if r.Header.Get("Accept") != "application/json" {
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprintf(w, "event: task_end\ndata: {\"params\":%s}\n\n", fill(`{"task_id":BAD,"status":BAD,"reason":BAD}`))
			fmt.Fprintf(w, "event: response\ndata: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":%s}\n\n", fill(result))
			return
		}
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":1,"result":%s}`, fill(result))
	}
	plan := t.TempDir() + "/plan.json"
	writeFile(t, plan, `{"tasks":[{"id":"a","type":"testing","description":"x"}]}`)
	for _, args := range [][]string{
		{"list"},
		{"status", "a"},
		{"sessions"},
		{"messages", "a"},
		{"events", "a"},
		{"approvals"},
		{"keys"},
		{"plan", plan},
		{"call", "list_agents"},
		{"send", "a", "x"},
		{"load", "x"},
		{"destroy", "x"},
	} {
		for _, args := range [][]string{args, append([]string{"--json"}, args...)} {
			got := run(t, serve, nil, args...)
			if acts := fixtures.ActsOn(got.stdout + got.stderr); acts != "" || got.stdout+got.stderr == "" {
				t.Errorf("%v: a terminal acts on %q of\n%s%s", args, acts, got.stdout, got.stderr)
			}
			for _, printed := range strings.Split(got.stdout+got.stderr, "\n") {
				if strings.HasPrefix(printed, "forged") {
					t.Errorf("%v: a line of its own:\n%s%s", args, got.stdout, got.stderr)
				}
			}
			if args[0] == "--json" && got.stdout != "" && !gjson.Valid(strings.Split(got.stdout, "\n")[0]) {
				t.Errorf("%v: no JSON any more: %s", args, got.stdout)
			}
		}
	}
	// The text is the same for programs.
	if got := run(t, serve, nil, "--json", "list"); gjson.Get(got.stdout, "agents.0.model").Str != hostile() {
		t.Errorf("--json changed the text: %q", got.stdout)
	}
}

// An answer comes in pieces, and what a terminal acts on may be spread over them.
func TestSendOfHostileText(t *testing.T) {
	answer := "one\x1b[31m two\u202e\u009b and\tthree\n\nfour\u200b\U000e0041\ufeff"
	var pieces []string
	for _, r := range answer {
		pieces = append(pieces, string(r))
	}
	content, err := json.Marshal(answer)
	if err != nil {
		t.Fatal(err)
	}
	got := run(t, streaming(`"content":`+string(content), pieces...), nil, "send", "a", "x")
	if want := `one\u001b[31m two\u202e\u009b and` + "\tthree\n\nfour" + `\u200b\udb40\udc41\ufeff` + "\n"; got.stdout != want || got.status != 0 {
		t.Errorf("got %d %q, want %q", got.status, got.stdout, want)
	}
}

// Bytes of a character that are written apart are one character; what is none is
// shown as such, at the end too.
func FuzzScreen(f *testing.F) {
	f.Add([]byte("a\xc2"), []byte("\x9bb"))
	f.Add([]byte("\xe2\x80"), []byte("\xae"))
	f.Add([]byte("\xff\xf0\x9f"), []byte("\x1b"))
	f.Add([]byte("\xe2"), []byte("x\xe2"))
	f.Fuzz(func(t *testing.T, first, second []byte) {
		got := screened(t, first, second)
		if !utf8.ValidString(got) || fixtures.ActsOn(got) != "" {
			t.Errorf("%q, %q: got %q", first, second, got)
		}
		if whole := screened(t, append(append([]byte{}, first...), second...)); whole != got {
			t.Errorf("in pieces %q, at once %q", got, whole)
		}
	})
}

// screened is what stands on the screen once the parts were written.
func screened(t *testing.T, parts ...[]byte) string {
	t.Helper()
	var out strings.Builder
	w, flush := cli.NewScreen(&out)
	for _, part := range parts {
		if n, err := w.Write(part); n != len(part) || err != nil {
			t.Fatal(n, err)
		}
	}
	if err := flush(); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
