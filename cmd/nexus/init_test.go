package main_test

import (
	"bytes"
	"os"
	"regexp"
	"slices"
	"testing"

	"github.com/go-json-experiment/json"

	"nexus.internal/cmd/internal/config"
)

// The configuration that nexus init writes is right as it is, and with all that is commented out in it;
// it names each setting.
func TestSampleConfiguration(t *testing.T) {
	text, err := os.ReadFile("init.jsonc")
	if err != nil {
		t.Fatal(err)
	}
	environ := []string{"HOME=" + t.TempDir(), "ANTHROPIC_API_KEY=x"}
	if _, err := config.LoadText("init.jsonc", text, environ); err != nil {
		t.Error(err)
	}
	all := regexp.MustCompile(`(?m)^  //(["} ])`).ReplaceAllFunc(text, func(match []byte) []byte {
		if match[4] == ' ' && !bytes.HasPrefix(match, []byte("  //  ")) {
			return match // words
		}
		return append([]byte("    "), match[4])
	})
	all = regexp.MustCompile(`(?m)^  //  (["}])`).ReplaceAll(all, []byte("      $1"))
	if _, err := config.LoadText("init.jsonc", all, environ); err != nil {
		t.Errorf("%v in\n%s", err, all)
	}
	schema, err := config.Schema()
	if err != nil {
		t.Fatal(err)
	}
	var members struct {
		Properties map[string]struct {
			Properties map[string]any `json:"properties"`
		} `json:"properties"`
	}
	if err := json.Unmarshal(schema, &members); err != nil {
		t.Fatal(err)
	}
	unsaid := []string{"$schema", "agents", "dir"} // agents is for create_agent alone; dir has no default that is a text
	for name, of := range members.Properties {
		if !slices.Contains(unsaid, name) && !bytes.Contains(all, []byte(`"`+name+`":`)) {
			t.Errorf("it does not name %s", name)
		}
		for member := range of.Properties {
			if !slices.Contains(unsaid, member) && !bytes.Contains(all, []byte(`"`+member+`":`)) {
				t.Errorf("it does not name %s.%s", name, member)
			}
		}
	}
}
