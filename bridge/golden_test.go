package bridge_test

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"
	"github.com/tidwall/gjson"

	"nexus.internal/bridge/api"
	"nexus.internal/fixtures"
)

// variable is what differs from run to run, and what the files say instead.
var variable = []struct {
	pattern *regexp.Regexp
	mask    string
}{
	{regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`), "UUID"},
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`), "TIME"},
	{regexp.MustCompile(`nxk_[A-Za-z0-9_-]{43}`), "KEY"},
	{regexp.MustCompile(`nxc_[A-Z2-7]{26}`), "CODE"},
	{regexp.MustCompile(`"key_id":"[0-9a-f]{12}"`), `"key_id":"HEX12"`},
	{regexp.MustCompile(`"key_file":"[^"]*"`), `"key_file":"FILE"`},
	{regexp.MustCompile(`"execution_time_ms":\d+`), `"execution_time_ms":MS`},
	{regexp.MustCompile(`"\.plan-[0-9a-f]{16}-`), `".plan-HEX-`},
	{regexp.MustCompile(`"\.task-[0-9a-f]{16}"`), `".task-HEX"`},
	{regexp.MustCompile(`"updated_at":[0-9.]+`), `"updated_at":SECONDS`},
	{regexp.MustCompile(`"agent_id":"[0-9a-f]{8}","url":"/agent/[0-9a-f]{8}"`), `"agent_id":"HEX8","url":"/agent/HEX8"`},
	{regexp.MustCompile(`http://127\.0\.0\.1:\d+/`), "http://HOST/"},
	{regexp.MustCompile(`\{"name":"[a-z_.]+","summary":`), "\n$0"}, // of rpc.discover: a line for each method
}

// shown are the response headers that the contract is about.
var shown = []string{"Allow", "Connection", "Content-Type", "Retry-After", "WWW-Authenticate"}

// TestGolden plays each file of fixtures/rpc against a server of its own: what
// is asked, byte for byte, and what is answered. In a request, $HOST is the
// server's host and port, $KEY its key; Content-Length is added where there is
// a body. Files below home/ are there from the beginning, the first the oldest.
func TestGolden(t *testing.T) {
	for _, name := range fixtures.Glob(t, "rpc/*.txtar") {
		t.Run(strings.TrimSuffix(path.Base(name), ".txtar"), func(t *testing.T) {
			r := rigged(t, tasks)
			archive := txtar.Parse(fixtures.Read(t, name))
			var got txtar.Archive
			got.Comment = archive.Comment
			var conn net.Conn // nil: the next step needs one of its own
			var in *bufio.Reader
			for _, f := range archive.Files {
				step, isRequest := strings.CutSuffix(f.Name, ".request")
				if strings.HasPrefix(f.Name, "home/") {
					got.Files = append(got.Files, f)
					r.save(f.Name, f.Data, len(got.Files))
				}
				if !isRequest {
					continue
				}
				got.Files = append(got.Files, f)
				if conn == nil {
					conn = r.dial()
					in = bufio.NewReader(conn)
				}
				if _, err := conn.Write([]byte(r.expand(string(f.Data)))); err != nil {
					t.Fatalf("%s: %v", step, err)
				}
				response, body := readResponse(t, in)
				ended := strings.Contains(string(f.Data), `"shutdown_server"`) && response.StatusCode == http.StatusOK
				if ended { // whether it closes the connection is a matter of who is faster
					conn.Close()
					conn, response.Close = nil, false
					response.Header.Del("Connection")
				}
				got.Files = append(got.Files, txtar.File{Name: step + ".response", Data: []byte(show(response, body))})
				if response.Close {
					conn.Close()
					conn = nil
				}
			}
			fixtures.Golden(t, name, txtar.Format(&got))
		})
	}
}

// Every method of the table has a result and an error in fixtures/rpc.
func TestEveryMethodHasGoldens(t *testing.T) {
	shown := map[string]bool{}
	for _, name := range fixtures.Glob(t, "rpc/*.txtar") {
		var asked gjson.Result
		for _, f := range txtar.Parse(fixtures.Read(t, name)).Files {
			_, body, _ := strings.Cut(string(f.Data), "\n\n")
			if strings.HasSuffix(f.Name, ".request") {
				asked = gjson.Parse(body)
				continue
			}
			for _, kind := range []string{"result", "error"} {
				if gjson.Get(body, kind).Exists() {
					shown[asked.Get("method").Str+" "+kind] = true
				}
			}
		}
	}
	for _, m := range api.Methods {
		for _, kind := range []string{"result", "error"} {
			if !shown[m.Name+" "+kind] {
				t.Errorf("fixtures/rpc has no %s of %s", kind, m.Name)
			}
		}
	}
}

// expand makes bytes for the wire of a request as the file has it.
func (r *rig) expand(text string) string {
	text = strings.NewReplacer("$HOST", r.addr, "$KEY", r.key.Reveal(), "$PORT", r.addr[strings.LastIndexByte(r.addr, ':')+1:]).Replace(text)
	head, body, _ := strings.Cut(text, "\n\n")
	body = strings.TrimSuffix(body, "\n")
	head = strings.TrimSuffix(head, "\n")
	if body != "" && !strings.Contains(head, "Content-Length") && !strings.Contains(head, "Transfer-Encoding") {
		head += fmt.Sprintf("\nContent-Length: %d", len(body))
	}
	return strings.ReplaceAll(head, "\n", "\r\n") + "\r\n\r\n" + body
}

func show(response *http.Response, body string) string {
	var out strings.Builder
	fmt.Fprintf(&out, "%s %s\n", response.Proto, response.Status)
	for _, name := range shown {
		value := response.Header.Get(name)
		if name == "Connection" && response.Close {
			value = "close"
		}
		if value != "" {
			fmt.Fprintf(&out, "%s: %s\n", name, value)
		}
	}
	for _, v := range variable {
		body = v.pattern.ReplaceAllString(body, v.mask)
	}
	if body != "" {
		fmt.Fprintf(&out, "\n%s\n", strings.TrimSuffix(body, "\n"))
	}
	return out.String()
}

// save puts a file into the home, hours after the others.
func (r *rig) save(name string, data []byte, hours int) {
	r.t.Helper()
	file := filepath.Join(r.home, filepath.FromSlash(strings.TrimPrefix(name, "home/")))
	at := time.Date(2026, 1, 2, hours, 0, 0, 0, time.UTC)
	err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, data, 0o600), os.Chtimes(file, at, at))
	if err != nil {
		r.t.Fatal(err)
	}
}
