package openrpc_test

import (
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/google/jsonschema-go/jsonschema"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/openrpc"
)

type content struct {
	Name     string             `json:"name"`
	Required bool               `json:"required"`
	Schema   *jsonschema.Schema `json:"schema"`
}

type document struct {
	OpenRPC string `json:"openrpc"`
	Info    struct {
		Title   string `json:"title"`
		Version string `json:"version"`
	} `json:"info"`
	Methods []struct {
		Name           string    `json:"name"`
		ParamStructure string    `json:"paramStructure"`
		Params         []content `json:"params"`
		Result         content   `json:"result"`
		Errors         []struct {
			Ref string `json:"$ref"`
		} `json:"errors"`
		Servers []struct {
			URL       string                    `json:"url"`
			Variables map[string]map[string]any `json:"variables"`
		} `json:"servers"`
	} `json:"methods"`
	Components struct {
		Errors map[string]struct {
			Code    *int   `json:"code"`
			Message string `json:"message"`
		} `json:"errors"`
	} `json:"components"`
}

func read(t *testing.T) document {
	t.Helper()
	raw, err := openrpc.Document("1.2.3", "http://127.0.0.1:8765")
	if err != nil {
		t.Fatal(err)
	}
	var d document
	if err := json.Unmarshal(raw, &d); err != nil {
		t.Fatal(err)
	}
	return d
}

// The document keeps the rules of OpenRPC 1.3 that a reader depends on.
func TestDocument(t *testing.T) {
	d := read(t)
	if !regexp.MustCompile(`^1\.3\.\d+$`).MatchString(d.OpenRPC) || d.Info.Title == "" || d.Info.Version != "1.2.3" {
		t.Errorf("openrpc %q, info %+v", d.OpenRPC, d.Info)
	}
	if len(d.Methods) != len(api.Methods) {
		t.Errorf("%d methods, want %d", len(d.Methods), len(api.Methods))
	}
	names := map[string]bool{}
	for _, m := range d.Methods {
		if names[m.Name] {
			t.Errorf("%s stands twice", m.Name)
		}
		names[m.Name] = true
		if m.ParamStructure != "by-name" || m.Params == nil || len(m.Servers) == 0 {
			t.Errorf("%s: structure %q, params %v, servers %v", m.Name, m.ParamStructure, m.Params, m.Servers)
		}
		params, optional := map[string]bool{}, false
		for _, p := range append(m.Params, m.Result) {
			if p.Name == "" || p.Schema == nil {
				t.Fatalf("%s: a parameter without name or schema", m.Name)
			}
			if _, err := p.Schema.Resolve(nil); err != nil {
				t.Errorf("%s %s: %v", m.Name, p.Name, err)
			}
		}
		for _, p := range m.Params {
			if params[p.Name] || p.Required && optional {
				t.Errorf("%s: %s stands twice, or is required after one that is not", m.Name, p.Name)
			}
			params[p.Name], optional = true, !p.Required
		}
		for _, e := range m.Errors {
			name := strings.TrimPrefix(e.Ref, "#/components/errors/")
			if failure := d.Components.Errors[name]; failure.Code == nil || failure.Message == "" {
				t.Errorf("%s: %s leads to nothing", m.Name, e.Ref)
			}
		}
		for _, s := range m.Servers {
			for _, found := range regexp.MustCompile(`\$\{(\w+)\}`).FindAllStringSubmatch(s.URL, -1) {
				if s.Variables[found[1]]["default"] == nil {
					t.Errorf("%s: %s has no default for %s", m.Name, s.URL, found[1])
				}
			}
		}
	}
}

// What the decoder lets be missing, by pointers and wire tags, the Go client leaves out
// where it is zero, by json options; the document says what the decoder does.
func TestOptionalIsOptional(t *testing.T) {
	seen := map[reflect.Type]bool{}
	var walk func(reflect.Type)
	walk = func(typ reflect.Type) {
		switch typ.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Map:
			walk(typ.Elem())
			return
		case reflect.Struct:
		default:
			return
		}
		if seen[typ] {
			return
		}
		seen[typ] = true
		for f := range typ.Fields() {
			tag := f.Tag.Get("json")
			if tag == "-" {
				continue
			}
			_, options, _ := strings.Cut(tag, ",")
			decoder := f.Type.Kind() == reflect.Pointer || f.Tag.Get("wire") != ""
			if client := options != "" || f.Tag.Get("wire") != ""; !f.Anonymous && client != decoder {
				t.Errorf("%v.%s is left out: %v by the client, may be missing: %v by the decoder", typ, f.Name, client, decoder)
			}
			walk(f.Type)
		}
	}
	for _, m := range api.Methods {
		walk(reflect.TypeOf(m.Params))
	}
}

// An enumeration in the document is one for the server, too.
func TestEnumerations(t *testing.T) {
	raw := func(when string) []byte { return []byte(`{"content":"a","when_busy":"` + when + `"}`) }
	for _, m := range read(t).Methods {
		for _, p := range m.Params {
			if m.Name != "send" || p.Name != "when_busy" {
				continue
			}
			for _, value := range p.Schema.Enum {
				if text, ok := value.(string); ok {
					if _, err := api.Decode[api.SendParams](raw(text)); err != nil {
						t.Errorf("%s is refused", text)
					}
				}
			}
			if len(p.Schema.Enum) != 4 { // and null
				t.Errorf("got %v", p.Schema.Enum)
			}
			return
		}
	}
	t.Error("send has no when_busy")
}

// The page has every method and parameter.
func TestPage(t *testing.T) {
	page := string(openrpc.Page("<1.2.3>", "http://127.0.0.1:8765"))
	for _, m := range read(t).Methods {
		if !strings.Contains(page, `<h2 id="`+m.Name+`">`) {
			t.Errorf("%s is missing", m.Name)
		}
		for _, p := range m.Params {
			if !strings.Contains(page, "<code>"+p.Name+"</code>") && !strings.Contains(page, "<code>"+p.Name+"?</code>") {
				t.Errorf("%s of %s is missing", p.Name, m.Name)
			}
		}
	}
	for _, want := range []string{"queue | reject | steer", "list of {path?, name?, mime?, text?, data?}", "string or null", "&lt;1.2.3&gt;"} {
		if !strings.Contains(page, want) {
			t.Errorf("%q is missing", want)
		}
	}
	if strings.Contains(page, "<script") {
		t.Error("there is a script")
	}
}
