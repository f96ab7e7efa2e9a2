package toolenv_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"nexus.internal/protocol"
)

// A sandboxed agent makes links to where it may not go, and learns nothing from what the tools say of them: whether
// there is a file, a directory or nothing, by any way through it.
func TestLinksTellNothing(t *testing.T) {
	s := newSite(t, protocol.Permissions{Preset: "sandboxed"})
	s.put(filepath.Join(s.dir, "own"), "own")
	long := strings.Repeat("n", 300)
	if err := os.Symlink("circle", filepath.Join(s.outside, "circle")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(s.outside, "dir"), 0o777); err != nil {
		t.Fatal(err)
	}
	for name, target := range map[string]string{
		"a-file": "secret.txt", "a-directory": "dir", "nothing": "none", "below-a-file": "secret.txt/x", "below-nothing": "none/x", "a-circle": "circle",
		"too-long": long, "back-by-a-directory": "dir/../../work/own", "back-by-nothing": "none/../../work/own", "back-by-a-file": "secret.txt/../../work/own",
	} {
		for _, base := range []string{s.outside, "../outside"} {
			link := name
			if base != s.outside {
				link += "-2"
			}
			if err := os.Symlink(base+"/"+target, filepath.Join(s.dir, link)); err != nil {
				t.Fatal(err)
			}
			for _, path := range []string{link, link + "/x", link + "/../x", link + "/../../work/own"} {
				if strings.HasPrefix(name, "back-") && path != link {
					continue // what is below a file of its own
				}
				out := path + " leads out of what this agent may touch"
				s.want("read_file: "+out, call("read_file", "path", path))
				s.want("list_directory: "+out, call("list_directory", "path", path))
				s.want("edit_file: "+out, call("edit_file", "path", path, "old_text", "a", "new_text", "b"))
				s.want("search_text: "+out, call("search_text", "path", path, "pattern", "a"))
				s.want("write_file: "+out, call("write_file", "path", path, "content", "b"))
				s.want("copy_file: "+out, call("copy_file", "from", "own", "to", path))
			}
			s.want("shell: "+link+" leads out of what this agent may touch", call("shell", "command", "true", "cwd", link))
		}
	}
}
