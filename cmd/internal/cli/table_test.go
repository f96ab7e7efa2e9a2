package cli_test

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/creack/pty"
	"github.com/google/go-cmp/cmp"

	"nexus.internal/cmd/internal/cli"
)

// A table has a line for each row, at a terminal at most as wide as that is, where wide characters take
// two columns. Names, which are typed again, are whole, and of a path the end is shown.
func TestTableWidth(t *testing.T) {
	agent := func(id, model, cwd string) string {
		return fmt.Sprintf(`{"agent_id":%q,"state":"ready","incarnation":1,"restarts":0,"queued":0,"message_count":2,"pid":7,"model":%q,"cwd":%q}`, id, model, cwd)
	}
	serve := func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":1,"result":{"agents":[%s,%s]}}`,
			agent("a-name-that-is-not-short", "a-model-whose-name-is-long", "/home/me/projects/of/this/year/site"), agent("b", "模型", "/"))
	}
	whole := `
AGENT                     STATE  PID  MESSAGES  APPROVALS  RESTARTS  MODEL                       CWD
a-name-that-is-not-short  ready  7    2         0          0         a-model-whose-name-is-long  /home/me/projects/of/this/year/site
b                         ready  7    2         0          0         模型                        /
`
	if diff := cmp.Diff(strings.TrimPrefix(whole, "\n"), run(t, serve, nil, "list").stdout); diff != "" {
		t.Errorf("no terminal: -want +got\n%s", diff)
	}
	cut := `
AGENT                     STATE  PID  MESSAGES  APPROVALS  RESTARTS  MODEL         CWD
a-name-that-is-not-short  ready  7    2         0          0         a-model-who…  …is/year/site
b                         ready  7    2         0          0         模型          /
`
	if diff := cmp.Diff(strings.TrimPrefix(cut, "\n"), shownAt(t, serve, 96, "list")); diff != "" {
		t.Errorf("96 columns: -want +got\n%s", diff)
	}
	for text := range strings.Lines(shownAt(t, serve, 20, "list")) {
		if strings.Contains(text, "a-name") && !strings.HasPrefix(text, "a-name-that-is-not-short  ready ") {
			t.Errorf("20 columns: got %q", text)
		}
	}
}

// shownAt is what a command line prints to a terminal of that many columns.
func shownAt(t *testing.T, serve http.HandlerFunc, columns uint16, args ...string) string {
	t.Helper()
	terminal, ours, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer terminal.Close()
	if err := pty.Setsize(ours, &pty.Winsize{Rows: 24, Cols: columns}); err != nil {
		t.Fatal(err)
	}
	var printed bytes.Buffer
	read := make(chan struct{})
	go func() { // ends with the terminal
		defer close(read)
		_, _ = printed.ReadFrom(terminal)
	}()
	got := runWith(t, serve, cli.Options{Stdin: strings.NewReader(""), Stdout: ours, Stderr: &bytes.Buffer{}}, args...)
	ours.Close()
	<-read
	if got.status != 0 {
		t.Errorf("exit status %d", got.status)
	}
	return strings.ReplaceAll(printed.String(), "\r\n", "\n")
}
