//go:build unix

package safefile_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"nexus.internal/protocol/safefile"
)

// Whoever may change what nexus trusts in a home could run programs as its user.
func TestCheckHome(t *testing.T) {
	const foreign, writable, link = "is another user's", "run chmod go-w ", "remove the link"
	const dangling = "which is not there: mend the link, or remove it"
	relinkNothing := func(path string) error { return errors.Join(os.RemoveAll(path), os.Symlink(path+".gone", path)) }
	chmod := func(mode os.FileMode) func(string) error {
		return func(path string) error { return os.Chmod(path, mode) }
	}
	give := func(path string) error { return os.Lchown(path, 12345, -1) }
	relink := func(path string) error {
		if err := os.Rename(path, path+".real"); err != nil {
			return err
		}
		return os.Symlink(path+".real", path)
	}
	for _, test := range []struct {
		name, path string
		change     func(path string) error
		want       string // "" is no error
		root       bool   // only root can give files away
	}{
		{"as it should be", ".", chmod(0o700), "", false},
		{"others may read", ".", chmod(0o755), "", false},
		{"the group may write", ".", chmod(0o770), writable, false},
		{"shared", ".", chmod(0o777 | os.ModeSticky), writable, false},
		{"a file that all may read", "config.json", chmod(0o644), "", false},
		{"a file that all may write", "config.json", chmod(0o666), writable, false},
		{"a key that the group may write", "server-9.key", chmod(0o620), writable, false},
		{"a directory that all may write", "run/scratch", chmod(0o777), writable, false},
		{"a linked file", "config.json", relink, "", false},
		{"a linked directory of sessions", "sessions", relink, "", false},
		{"a file that is a link to nothing", "config.json", relinkNothing, dangling, false},
		{"a directory that is a link to nothing", "sessions", relinkNothing, dangling, false},
		{"a linked run", "run", relink, link, false},
		{"a linked directory in run", "run/scratch", relink, link, false},
		{"given away", ".", give, foreign + ", who could run programs as you: run this as its owner (sudo -u '#12345' …), choose another home", true},
		{"configuration given away", "config.json", give, foreign, true},
		{"servers given away", "mcp.json", give, foreign, true},
		{"prompt given away", "NEXUS.md", give, foreign, true},
		{"key given away", "server-9.key", give, foreign, true},
		{"run given away", "run", give, foreign, true},
		{"lock given away", "run/lock", give, foreign, true},
		{"another's link", "config.json", func(path string) error {
			if err := relink(path); err != nil {
				return err
			}
			return give(path)
		}, foreign, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.root && os.Geteuid() != 0 {
				return
			}
			home := t.TempDir()
			for _, name := range []string{"config.json", "mcp.json", "NEXUS.md", "server-9.key", "run/lock", "run/scratch/x", "sessions/a.jsonl"} {
				path := filepath.Join(home, name)
				if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			path := filepath.Join(home, test.path)
			if err := test.change(path); err != nil {
				t.Fatal(err)
			}
			err := safefile.CheckHome(home)
			if (err == nil) != (test.want == "") {
				t.Fatalf("got %v, want %q", err, test.want)
			}
			if err != nil && !(strings.Contains(err.Error(), test.want) && strings.Contains(err.Error(), path)) {
				t.Errorf("got %v, want an error on %s that says %q", err, path, test.want)
			}
		})
	}
	if err := safefile.CheckHome(filepath.Join(t.TempDir(), "none")); err != nil {
		t.Errorf("a home that is to be made: %v", err)
	}
}

func TestHomeOf(t *testing.T) {
	tests := []struct {
		name string
		env  []string
		want string // "" is an error
	}{
		{"NEXUS_HOME", []string{"HOME=/h", "NEXUS_HOME=/n"}, "/n"},
		{"the user's home", []string{"HOME=/h"}, "/h/.nexus3"},
		{"an empty NEXUS_HOME", []string{"HOME=/h", "NEXUS_HOME="}, "/h/.nexus3"},
		{"neither", nil, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := safefile.HomeOf(tt.env)
			if got != tt.want || (err == nil) != (tt.want != "") {
				t.Errorf("got %q, %v, want %q", got, err, tt.want)
			}
		})
	}
}

// The path of a home leads through no link, also where the home is yet to be made.
func TestHomeThroughALink(t *testing.T) {
	top, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(top, "real"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("real", filepath.Join(top, "link")); err != nil {
		t.Fatal(err)
	}
	for given, want := range map[string]string{"link/new/home": "real/new/home", "link": "link", "real": "real"} {
		if got, err := safefile.HomeOf([]string{"NEXUS_HOME=" + filepath.Join(top, given)}); err != nil || got != filepath.Join(top, want) {
			t.Errorf("%s: got %s, %v, want %s", given, got, err, want)
		}
	}
}
