package bridge_test

import (
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"nexus.internal/bridge/api"
)

// specStatus finds the HTTP status and the kinds in a row of the table of errors.
var specStatus = regexp.MustCompile(`(?m)^\| .* \| ([0-9, ]+|–) \| [^|]* \| ([A-Z_, ]+) \|$`)

// TestStatuses holds what SPEC says of the HTTP status of answers beside the table of errors
// and the server: the text of §6.1 names each exception from 200, and no other.
func TestStatuses(t *testing.T) {
	text, err := os.ReadFile("../SPEC.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n### 6.1 ")
	rule, section, _ := strings.Cut(section, "\n### 6.2 ")
	_, rule, _ = strings.Cut(rule, "\nA request that passes these checks ")
	rule, _, _ = strings.Cut(rule, "\n\n")
	table, _, _ := strings.Cut(section, "\n### 6.3 ")
	rules := strings.FieldsFunc(rule, func(c rune) bool { return c != '_' && (c < 'A' || c > 'Z') })
	listed := map[api.ErrorKind]string{} // by the table of SPEC
	for _, row := range specStatus.FindAllStringSubmatch(table, -1) {
		for kind := range strings.SplitSeq(row[2], ", ") {
			listed[api.ErrorKind(kind)] += row[1] + " "
		}
	}
	for kind, row := range api.Errors {
		status := strconv.Itoa(row.Status)
		if !strings.Contains(listed[kind], status) && listed[kind] != "– " {
			t.Errorf("%s has status %s, and SPEC has %q in the table", kind, status, listed[kind])
		}
		if named := slices.Contains(rules, string(kind)); named != (row.Status != http.StatusOK) {
			t.Errorf("%s has status %s, and SPEC's rule about 200 names it: %v", kind, status, named)
		}
	}

	r := rigged(t, nil)
	const (
		noSession = `{"jsonrpc":"2.0","method":"load_session","params":{"session_name":"nobody"},"id":1}`
		noAgent   = `{"jsonrpc":"2.0","method":"nonsense","id":1}`
		list      = `{"jsonrpc":"2.0","method":"list_agents","id":2}`
	)
	for _, test := range []struct {
		path, body string
		status     int
		kind, id   string // at .0 of a batch
	}{
		{"/", noSession, 404, "SESSION_NOT_FOUND", "1"},
		{"/", "[" + noSession + "," + noSession + "]", 404, "SESSION_NOT_FOUND", "1"},
		{"/", "[" + noSession + "," + list + "]", 200, "SESSION_NOT_FOUND", "1"},
		{"/agent/nobody", noAgent, 404, "AGENT_NOT_FOUND", "1"},
		{"/agent/a..b", noAgent, 404, "NOT_FOUND", "null"},
		{"/agents", noAgent, 404, "NOT_FOUND", "null"},
	} {
		response, body := r.post(test.path, test.body)
		first := gjson.Parse(body)
		if first.IsArray() {
			first = first.Get("0")
		}
		if response.StatusCode != test.status || first.Get("error.data.type").Str != test.kind || first.Get("id").Raw != test.id {
			t.Errorf("%s %s: %d %s, want %d %s id %s", test.path, test.body, response.StatusCode, body, test.status, test.kind, test.id)
		}
	}
}

// TestErrorsAreToldOnce looks at every error in fixtures/rpc: details repeat neither
// the message nor a recovery suggestion.
func TestErrorsAreToldOnce(t *testing.T) {
	checked := 0
	err := fs.WalkDir(os.DirFS("../fixtures/rpc"), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := os.ReadFile(filepath.Join("../fixtures/rpc", name))
		for line := range strings.Lines(string(text)) {
			data := gjson.Get(line, "error.data")
			details, message := data.Get("details").String(), gjson.Get(line, "error.message").String()
			if details == "" {
				continue
			}
			checked++
			if strings.Contains(details, message) || strings.Contains(strings.ToLower(message+data.Get("recovery_suggestions").Raw), strings.ToLower(details)) {
				t.Errorf("%s: said twice: %s", name, line)
			}
		}
		return err
	})
	if err != nil || checked < 50 {
		t.Errorf("checked %d errors: %v", checked, err)
	}
}
