package prompt_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"nexus.internal/child/prompt"
)

func TestLoad(t *testing.T) {
	home, cwd, empty := t.TempDir(), t.TempDir(), t.TempDir()
	for path, text := range map[string]string{
		filepath.Join(home, "NEXUS.md"): "personal", filepath.Join(cwd, "NEXUS.md"): "project",
		filepath.Join(empty, "binary"): "\xff", filepath.Join(empty, "large"): strings.Repeat("x", prompt.MaxSize+1), filepath.Join(empty, "own"): "own",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	own := filepath.Join(empty, "own")
	tests := []struct {
		name string
		o    prompt.Options
		text string // "" is an error
		path string
	}{
		{"text", prompt.Options{System: "said", Home: home, Cwd: cwd}, "said", ""},
		{"a file", prompt.Options{File: own, Home: home, Cwd: cwd}, "own", own},
		{"both layers", prompt.Options{Home: home, Cwd: cwd}, "personal\n\n# Instructions of this project (they prevail over those above)\n\nproject", filepath.Join(cwd, "NEXUS.md")},
		{"personal alone", prompt.Options{Home: home, Cwd: empty}, "personal", filepath.Join(home, "NEXUS.md")},
		{"project alone", prompt.Options{Home: empty, Cwd: cwd}, "project", filepath.Join(cwd, "NEXUS.md")},
		{"at home in the home", prompt.Options{Home: home, Cwd: home}, "personal", filepath.Join(home, "NEXUS.md")},
		{"neither", prompt.Options{Home: empty, Cwd: empty}, prompt.Default, ""},
		{"text and file", prompt.Options{System: "said", File: own}, "", ""},
		{"a missing file", prompt.Options{File: filepath.Join(empty, "none")}, "", ""},
		{"a file that is no text", prompt.Options{File: filepath.Join(empty, "binary")}, "", ""},
		{"a file that is too large", prompt.Options{File: filepath.Join(empty, "large")}, "", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := prompt.Load(tt.o)
			if got.Text != tt.text || got.Path != tt.path || (err == nil) != (tt.text != "") {
				t.Errorf("got %+v, %v", got, err)
			}
			if explicit := tt.o.System != "" || tt.o.File != ""; err == nil && got.Explicit != explicit {
				t.Errorf("explicit is %v", got.Explicit)
			}
		})
	}
}
