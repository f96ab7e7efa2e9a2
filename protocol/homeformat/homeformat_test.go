package homeformat_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"nexus.internal/protocol/homeformat"
)

// A home has the format of its file, and the present one without it.
func TestCheckAndMark(t *testing.T) {
	for _, tt := range []struct{ name, text, want string }{
		{"no file", "", ""},
		{"ours", `{"format":1,"version":"v1"}`, ""},
		{"ours, with more", `{"format":1,"version":"v1","since":"a later one"}`, ""},
		{
			"later", `{"format":2,"version":"v9","layout":{}}`,
			`format.json says that this home has format 2, as nexus "v9" left it, and this program reads formats up to 1: use programs of that version or newer ones,`,
		},
		{"later, by nobody", `{"format":4294967295}`, `has format 4294967295, and this program reads formats up to 1: use programs of its version or newer ones,`},
		{"of no number", `{"format":"2"}`, `format.json does not say which format the home has: member "format" must be a non-negative integer, is a string`},
		{"0", `{"format":0}`, `does not say which format the home has: there is no format 0; if no newer nexus has used this home, remove that file`},
		{"torn", `{"form`, `does not say which format the home has`},
		{"large", strings.Repeat(" ", homeformat.MaxSize+1), `is larger than 4096 bytes`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			home := t.TempDir()
			path := filepath.Join(home, homeformat.Name)
			if tt.text != "" {
				if err := os.WriteFile(path, []byte(tt.text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			for what, err := range map[string]error{"Check": homeformat.Check(home), "Mark": homeformat.Mark(home, "v1")} {
				if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
					t.Errorf("%s = %v, want %q", what, err, tt.want)
				}
				if _, newer := errors.AsType[*homeformat.NewerError](err); newer != strings.HasPrefix(tt.name, "later") {
					t.Errorf("%s = %T", what, err)
				}
			}
			want := tt.text
			if want == "" {
				want = `{"format":1,"version":"v1"}` + "\n"
			}
			if got, err := os.ReadFile(path); err != nil || string(got) != want {
				t.Errorf("then the file is %q, %v, want %q", got, err, want)
			}
		})
	}
	missing := filepath.Join(t.TempDir(), "home")
	if err := homeformat.Check(missing); err != nil {
		t.Errorf("a home that is not there: %v", err)
	}
	if _, err := os.Lstat(missing); err == nil {
		t.Error("looking has made a home")
	}
}
