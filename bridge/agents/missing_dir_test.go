package agents_test

import (
	"io/fs"
	"strings"
	"syscall"
	"testing"

	"nexus.internal/bridge/agents"
)

// What is wrong with the directory of a saved session, and what to do about it.
func TestMissingDirError(t *testing.T) {
	const moved = `Then set_cwd {"cwd":"/DIR"} of agent a moves it elsewhere. Or create`
	for _, test := range []struct {
		err        error
		says, mend string
	}{
		{syscall.ENOENT, "is gone", "Make the directory again, an empty one will do. "},
		{syscall.EACCES, "may not be entered", "Let the server's user enter the directory. "},
		{syscall.ENOTDIR, "cannot be reached: not a directory", "Make the directory again, an empty one will do. "},
		{nil, "has become a link, or is below one", "Put a directory in place of the link, an empty one will do. "},
	} {
		e := &agents.MissingDirError{Session: "a", Cwd: "/srv/a"}
		if test.err != nil {
			e.Err = &fs.PathError{Op: "lstat", Path: "/srv/a", Err: test.err}
		}
		if got, want := e.Error(), "a worked in /srv/a, which "+test.says; got != want {
			t.Errorf("error %q, want %q", got, want)
		}
		if got, want := e.Remedy(), test.mend+moved; !strings.HasPrefix(got, want) {
			t.Errorf("suggestion %q, want %q first", got, want)
		}
	}
}
