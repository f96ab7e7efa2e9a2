package safefile_test

import (
	"testing"

	"nexus.internal/protocol/safefile"
)

func TestExpandTilde(t *testing.T) {
	for _, tt := range []struct{ home, path, want string }{
		{"/home/me", "~", "/home/me"},
		{"/home/me/", "~/a b/../c", "/home/me/a b/../c"},
		{"/home/me", "~/", "/home/me/"},
		{"/home/me", "./~", "./~"},
		{"/home/me", "a/~/b", "a/~/b"},
		{"/home/me", "", ""},
		{"/home/me", "~you/a", "~you/a: ~ stands for a home only alone or before a slash; for a file of that name, write ./~you/a"},
		{"/home/me", "~~", "~~: ~ stands for a home only alone or before a slash; for a file of that name, write ./~~"},
		{"", "~/a", "~/a: the home that ~ stands for is not known here; for a directory of that name, write ./~/a"},
		{"here", "~", "~: the home that ~ stands for is not known here; for a directory of that name, write ./~"},
	} {
		t.Setenv("HOME", tt.home)
		got, err := safefile.ExpandTilde(tt.path)
		if err != nil {
			got = err.Error()
		}
		if got != tt.want {
			t.Errorf("%q at home in %q: got %q, want %q", tt.path, tt.home, got, tt.want)
		}
	}
}
