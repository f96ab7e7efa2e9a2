package main_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/tidwall/gjson"

	"nexus.internal/cmd/internal/probe"
)

// chatAgent is an agent for the protocol pipe: it asks the service of chat completions that its
// environment names, and passes on the answer as it comes.
func chatAgent(stdin io.Reader, stdout io.Writer) int {
	prompt, err := io.ReadAll(stdin)
	if err != nil {
		return 1
	}
	body, err := json.Marshal(map[string]any{"stream": true, "messages": []any{map[string]any{"role": "user", "content": string(prompt)}}})
	if err != nil {
		return 1
	}
	response, err := http.Post(os.Getenv("OPENAI_BASE_URL")+"/chat/completions", "application/json", bytes.NewReader(body)) //nolint:noctx // it ends with the process
	if err != nil {
		return 1
	}
	defer response.Body.Close()
	for lines := bufio.NewScanner(response.Body); lines.Scan(); {
		if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
			fmt.Fprint(stdout, gjson.Get(data, "choices.0.delta.content").Str)
		}
	}
	return 0
}

// A program that is probed shows what it is and does, and nothing of it is left.
func TestProbe(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	agent := filepath.Join(dir, "chat-agent")
	if err := os.Symlink(self, agent); err != nil {
		t.Fatal(err)
	}
	picture := filepath.Join(dir, "card.svg")
	cmd := exec.CommandContext(t.Context(), filepath.Join(programs, "nexus"), "probe", "--protocol", "pipe", "--json", "--svg", picture, "--", "./chat-agent") // which is here, and runs elsewhere
	cmd.Dir = dir
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, stderr.String())
	}
	var card probe.Card
	if err := json.Unmarshal(out, &card); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	if card.Protocol != "pipe" || card.Dialect != "openai chat" || len(card.Problems) > 0 {
		t.Errorf("protocol %q, dialect %q, problems %q", card.Protocol, card.Dialect, card.Problems)
	}
	// Each prompt stands alone, so nothing is remembered; nexus keeps what a killed one has said.
	if card.Remembers || card.RemembersAfterCrash || !card.KeepsPartialText || card.Remains != 0 || !card.LargePrompt {
		t.Errorf("card: %+v", card)
	}
	if card.CancelMS == 0 && card.EndMS == 0 || card.StartMS < 0 || card.MemoryBytes < 0 {
		t.Errorf("card: %+v", card)
	}
	if text, err := os.ReadFile(picture); err != nil || !bytes.Contains(text, []byte("openai chat")) || !bytes.HasPrefix(text, []byte("<svg ")) {
		t.Errorf("picture: %v, %.100s", err, text)
	}
}

// The card of a program that asks no model has nothing that was not tried.
func TestProbeWithoutModel(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), filepath.Join(programs, "nexus"), "probe", "--protocol", "pipe", "--", "tr", "a-z", "A-Z")
	out, err := cmd.Output()
	if err != nil || !strings.Contains(string(out), "asked no model") {
		t.Fatalf("%v in %s", err, out)
	}
	for _, untried := range []string{"goes on", "bytes for one", "crashed turn", "and remembers", "processes left"} {
		if strings.Contains(string(out), untried) {
			t.Errorf("%q is told:\n%s", untried, out)
		}
	}
}

// What cannot be probed is refused in words.
func TestProbeRefuses(t *testing.T) {
	for want, args := range map[string][]string{
		"name the program, after --":    {"probe"},
		"there is no program":           {"probe", "--", "no-such-program"},
		`member "protocol" is "telnet"`: {"probe", "--protocol", "telnet", "--", "cat"},
		"--env wants NAME=VALUE":        {"probe", "--env", "X", "--", "cat"},
		"takes no prompt by any":        {"probe", "--", "false"},
	} {
		cmd := exec.CommandContext(t.Context(), filepath.Join(programs, "nexus"), args...)
		if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), want) {
			t.Errorf("%q: %v, %s", args, err, out)
		}
	}
}
