package cli_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The path of a directory that is not UTF-8 fits no JSON: the error says so, and what to do.
func TestADirectoryThatCannotBeSent(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "d\xff")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	for _, args := range [][]string{{"create", "a"}, {"create", "a", "--cwd", "below"}, {"plan", "-"}} {
		got := run(t, func(http.ResponseWriter, *http.Request) { t.Error("something was sent") }, nil, args...)
		if got.status != 2 || !strings.Contains(got.stderr, `d\xff`) || !strings.Contains(got.stderr, "is not UTF-8: name another directory by --cwd") {
			t.Errorf("%q: got %d, %q", args, got.status, got.stderr)
		}
	}
}
