package bridge_test

import (
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/google/jsonschema-go/jsonschema"
	"github.com/rogpeppe/go-internal/txtar"

	"nexus.internal/fixtures"
)

// described is a method as rpc.discover tells of it.
type described struct {
	Name   string `json:"name"`
	Params []struct {
		Name     string             `json:"name"`
		Required bool               `json:"required"`
		Schema   *jsonschema.Schema `json:"schema"`
	} `json:"params"`
	Result struct {
		Schema *jsonschema.Schema `json:"schema"`
	} `json:"result"`
}

// unmask makes JSON again of what golden files say instead of numbers.
var unmask = regexp.MustCompile(`:(MS|SECONDS)\b`)

// Every exchange of fixtures/rpc is as rpc.discover says: parameters that were
// accepted fit their schemas, and so do results.
func TestDiscover(t *testing.T) {
	r := rigged(t, nil)
	var document struct {
		Methods []described `json:"methods"`
	}
	_, body := r.post("/rpc", `{"jsonrpc":"2.0","method":"rpc.discover","id":1}`)
	answer := struct {
		Result any `json:"result"`
	}{&document}
	if err := json.Unmarshal([]byte(body), &answer); err != nil {
		t.Fatal(err)
	}
	methods := map[string]described{}
	for _, m := range document.Methods {
		methods[m.Name] = m
	}
	for _, name := range fixtures.Glob(t, "rpc/*.txtar") {
		files := map[string]string{}
		archive := txtar.Parse(fixtures.Read(t, name))
		for _, f := range archive.Files {
			_, body, _ := strings.Cut(string(f.Data), "\n\n")
			files[f.Name] = body
		}
		for step, request := range files {
			step, ok := strings.CutSuffix(step, ".request")
			if !ok {
				continue
			}
			var asked struct {
				Method string         `json:"method"`
				Params map[string]any `json:"params"`
			}
			var told struct {
				Result any `json:"result"`
			}
			response := unmask.ReplaceAllString(files[step+".response"], ":1")
			if json.Unmarshal([]byte(request), &asked) != nil || json.Unmarshal([]byte(response), &told) != nil || told.Result == nil {
				continue
			}
			m := methods[asked.Method]
			check(t, name+" "+step+" result", m.Result.Schema, told.Result)
			for _, p := range m.Params {
				value, given := asked.Params[p.Name]
				if p.Required && !given {
					t.Errorf("%s %s: %s is required, and it goes without", name, step, p.Name)
				}
				if given {
					check(t, name+" "+step+" "+p.Name, p.Schema, value)
					delete(asked.Params, p.Name)
				}
			}
			if len(asked.Params) > 0 {
				t.Errorf("%s %s: %v are not described", name, step, asked.Params)
			}
		}
	}
}

func check(t *testing.T, what string, s *jsonschema.Schema, value any) {
	t.Helper()
	resolved, err := s.Resolve(nil)
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	if err := resolved.Validate(value); err != nil {
		t.Errorf("%s: %v", what, err)
	}
}

// The page about the methods needs no key, and is no way past the other checks.
func TestDocs(t *testing.T) {
	r := rigged(t, nil)
	response, body := r.raw("GET /docs HTTP/1.1\r\nHost: " + r.addr + "\r\n\r\n")
	if response.StatusCode != http.StatusOK || response.Header.Get("Content-Type") != "text/html; charset=utf-8" ||
		response.Header.Get("Content-Security-Policy") == "" || !strings.Contains(body, "respond_permission") {
		t.Errorf("got %d %v", response.StatusCode, response.Header)
	}
	if h := response.Header; h.Get("X-Content-Type-Options") != "nosniff" || !strings.Contains(h.Get("Content-Security-Policy"), "frame-ancestors 'none'") {
		t.Errorf("it may be framed, or taken for something else: %v", h)
	}
	if response, _ := r.raw("GET /docs HTTP/1.1\r\nHost: elsewhere.example\r\n\r\n"); response.StatusCode != http.StatusForbidden {
		t.Errorf("another host: %d", response.StatusCode)
	}
	if response, _ := r.raw("POST /docs HTTP/1.1\r\nHost: " + r.addr + "\r\nContent-Length: 0\r\n\r\n"); response.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d", response.StatusCode)
	}
}
