package suggest_test

import (
	"strings"
	"testing"

	"nexus.internal/protocol/suggest"
)

func TestNearest(t *testing.T) {
	known := []string{"providers", "default_model", "default_provider", "profiles", "ls", "save", "serve", strings.Repeat("n", 65)}
	for _, tt := range []struct{ name, want string }{
		{"provders", "providers"},
		{"Providers", "providers"},
		{"porviders", "providers"}, // two neighbours swapped
		{"default-model", "default_model"},
		{"default_provdier", "default_provider"},
		{"sl", "ls"},
		{"srve", "serve"},    // as near to save
		{"prof", "profiles"}, // its beginning
		{"default", ""},      // that of two
		{"pr", ""},
		{"x", ""},
		{"", ""},
		{"limits", ""},
		{"mdel", "default_model"}, // its word
		{"model", "default_model"},
		{"modes", "default_model"},
		{"provide", "providers"}, // a whole name before a word
		{"efault", ""},           // a word of two
		{strings.Repeat("n", 65), ""},
	} {
		if got := suggest.Nearest(tt.name, known); got != tt.want {
			t.Errorf("%q: got %q, want %q", tt.name, got, tt.want)
		}
	}
}
