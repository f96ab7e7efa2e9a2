package config_test

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"
	"github.com/google/jsonschema-go/jsonschema"
	"github.com/tailscale/hujson"

	"nexus.internal/cmd/internal/config"
)

// schemaFile is shipped for editors.
const schemaFile = "../../../fixtures/config.schema.json"

// resolved is the schema that is shipped, ready to check with.
func resolved(t *testing.T) *jsonschema.Resolved {
	t.Helper()
	text, err := os.ReadFile(schemaFile)
	if err != nil {
		t.Fatal(err)
	}
	s := &jsonschema.Schema{}
	if err := json.Unmarshal(text, s); err != nil {
		t.Fatal(err)
	}
	r, err := s.Resolve(nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func refused(t *testing.T, text []byte) error {
	t.Helper()
	plain, err := hujson.Standardize(bytes.Clone(text)) // an editor that reads the schema takes comments, too
	if err != nil {
		t.Fatal(err)
	}
	var value any
	if err := json.Unmarshal(plain, &value); err != nil {
		t.Fatal(err)
	}
	return resolved(t).Validate(value)
}

// checkSchema fails if the schema refuses a file that Load takes.
func checkSchema(t *testing.T, text []byte) {
	t.Helper()
	if err := refused(t, text); err != nil {
		t.Errorf("the schema refuses %s: %v", text, err)
	}
}

// The schema that is shipped is that of the types that files are decoded into. UPDATE=1
// writes it anew.
func TestSchema(t *testing.T) {
	want, err := config.Schema()
	if err != nil {
		t.Fatal(err)
	}
	if os.Getenv("UPDATE") != "" {
		if err := os.WriteFile(schemaFile, want, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(schemaFile)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// The configuration that child/AGENT.md shows to newcomers is taken as it stands there.
func TestDocumentedConfiguration(t *testing.T) {
	page, err := os.ReadFile("../../../child/AGENT.md")
	if err != nil {
		t.Fatal(err)
	}
	_, sample, _ := strings.Cut(string(page), "\n### 4.3 ")
	_, sample, _ = strings.Cut(sample, "```json\n")
	sample, _, found := strings.Cut(sample, "```")
	if !found || !strings.Contains(sample, `"default_model"`) {
		t.Fatalf("child/AGENT.md §4.3 does not begin with a configuration: %s", sample)
	}
	c := load(t, sample)
	if choice, err := c.Models.Choose(config.Wish{}); err != nil || choice.Name != "openrouter" || choice.Model != "openai/gpt-4o-mini" {
		t.Errorf("it chooses %+v, %v", choice, err)
	}
}

// An editor that has the schema finds what is wrong with the form of a file.
func TestSchemaRefuses(t *testing.T) {
	checkSchema(t, []byte(vendors+"}"))
	for _, text := range []string{
		`{"provders":{}}`, `{"providers":{"p":[]}}`, `{"providers":{"p":{"type":"x"}}}`, `{"providers":{"p":{"type":"openai","auth_method":"x"}}}`,
		`{"limits":{"tokens":-1}}`, `{"limits":{"dollars":1}}`, `{"roles":{"planner":{"agent":1}}}`, `{"default_model":1}`, `[]`,
	} {
		if err := refused(t, []byte(text)); err == nil || strings.Contains(err.Error(), "unresolved") {
			t.Errorf("%s is taken: %v", text, err)
		}
	}
}
