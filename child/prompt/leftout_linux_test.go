package prompt_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"nexus.internal/child/prompt"
)

// What stands where a project's file should, the agent itself may have put there: it is
// left out, and neither waited for, read to its end, nor followed out of the project. The
// other files still count.
func TestWhatIsNoFileIsLeftOut(t *testing.T) {
	secret := tree(t, map[string]string{"secret": "secret"})
	for _, tt := range []struct {
		name, want string
		make       func(path string) error // in the place of the project's NEXUS.md
	}{
		{"too large", "larger than 262144 bytes", func(path string) error { return os.WriteFile(path, make([]byte, prompt.MaxSize+1), 0o600) }},
		{"without end, nearly", "larger than 262144 bytes", func(path string) error {
			return errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, 1<<40))
		}},
		{"no text", "is not UTF-8 text", func(path string) error { return os.WriteFile(path, []byte("\xff"), 0o600) }},
		{"a directory", "is not a regular file", func(path string) error { return os.Mkdir(path, 0o700) }},
		{"a pipe", "is not a regular file", func(path string) error { return unix.Mkfifo(path, 0o600) }},
		{"a link to a pipe", "is not a regular file", func(path string) error {
			return errors.Join(unix.Mkfifo(path+".pipe", 0o600), os.Symlink("NEXUS.md.pipe", path))
		}},
		{"a socket", "is not a regular file", func(path string) error { return unix.Mknod(path, unix.S_IFSOCK|0o600, 0) }},
		{"a link out of it", "escapes", func(path string) error { return os.Symlink(filepath.Join(secret, "secret"), path) }},
		{"a link to itself", "NEXUS.md", func(path string) error { return os.Symlink("NEXUS.md", path) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := tree(t, map[string]string{".git/HEAD": "", "a/NEXUS.md": "of a"})
			if err := tt.make(filepath.Join(dir, "NEXUS.md")); err != nil {
				t.Fatal(err)
			}
			got, err := prompt.Load(prompt.Options{Cwd: filepath.Join(dir, "a")})
			if err != nil || got.Text != "of a" || len(got.LeftOut) != 1 {
				t.Fatalf("got %q without %v, %v", got.Text, got.LeftOut, err)
			}
			if why := got.LeftOut[0].Error(); !strings.Contains(why, tt.want) || !strings.Contains(why, "NEXUS.md") {
				t.Errorf("left out: %s, want %s", why, tt.want)
			}
		})
	}
}

// A program of the agent may put a link in the place of the working directory, or of one above
// it, after the directory was checked: the files of another directory once became its prompt.
func TestWorkIsALink(t *testing.T) {
	for _, tt := range []struct{ name, link, cwd string }{
		{"the directory", "work/c", "work/c"},
		{"one above it", "work", "work/c"},
		{"the project's root", "work", "work"},
		{"a directory below the root of a project that is a link", "repo", "repo/c"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := tree(t, map[string]string{"work/d/x": "", "victim/NEXUS.md": "secret", "victim/.git/HEAD": "", "victim/c/NEXUS.md": "secret"})
			link := filepath.Join(dir, tt.link)
			if err := errors.Join(os.RemoveAll(link), os.Symlink(filepath.Join(dir, "victim"), link)); err != nil {
				t.Fatal(err)
			}
			got, err := prompt.Load(prompt.Options{Cwd: filepath.Join(dir, tt.cwd)})
			if err != nil || got.Text != prompt.Default || len(got.LeftOut) != 1 {
				t.Fatalf("got %q without %v, %v", got.Text, got.LeftOut, err)
			}
			if want := "open " + link + ": is a symbolic link"; !strings.HasSuffix(got.LeftOut[0].Error(), want) {
				t.Errorf("left out: %v, want %s", got.LeftOut[0], want)
			}
		})
	}
}

// A link leads to nothing beside its directory, be it of the same project: in its own directory a
// sandboxed agent makes links to files that it may not read.
func TestALinkToWhatIsBesideIsLeftOut(t *testing.T) {
	for _, target := range []string{"../secret", "../AGENTS.md", "../a/../secret", "sub/../../secret", "sub/up/secret", "hop"} {
		t.Run(target, func(t *testing.T) {
			dir := tree(t, map[string]string{".git/HEAD": "", "secret": "secret", "AGENTS.md": "top", "a/AGENTS.md": "of a", "a/sub/x": ""})
			a := filepath.Join(dir, "a")
			if err := errors.Join(os.Symlink(target, a+"/NEXUS.md"), os.Symlink("../..", a+"/sub/up"), os.Symlink("../secret", a+"/hop")); err != nil {
				t.Fatal(err)
			}
			got, err := prompt.Load(prompt.Options{Cwd: a})
			const want = "top\n\n# Instructions for a (they prevail over those above)\n\nof a"
			if err != nil || got.Text != want || len(got.LeftOut) != 1 || !strings.Contains(got.LeftOut[0].Error(), a+"/NEXUS.md: path escapes") {
				t.Errorf("got %q without %v, %v", got.Text, got.LeftOut, err)
			}
		})
	}
}

// blocked are paths that an agent may not read.
type blocked []string

func (b blocked) OutOfBounds(path string) bool { return slices.Contains(b, path) }

// A link in an agent's own directory leads to nothing there that is blocked for it: it would have read
// it by its prompt. What stands in a place that is blocked itself, its owner put there.
func TestALinkToWhatIsBlockedIsLeftOut(t *testing.T) {
	dir := tree(t, map[string]string{"secret": "secret", "NEXUS.md": "of nexus", "sub/x": ""})
	if err := errors.Join(os.Symlink("sub/../secret", dir+"/AGENTS.md"), os.Symlink("NEXUS.md", dir+"/CLAUDE.md")); err != nil {
		t.Fatal(err)
	}
	got, err := prompt.Load(prompt.Options{Cwd: dir, Bounds: blocked{dir + "/secret", dir + "/NEXUS.md"}})
	if err != nil || got.Text != "of nexus" || len(got.LeftOut) != 2 || !strings.Contains(got.LeftOut[1].Error(), dir+"/AGENTS.md: leads to what is out of bounds") {
		t.Errorf("got %q without %v, %v", got.Text, got.LeftOut, err)
	}
	got, err = prompt.Load(prompt.Options{Cwd: dir, Bounds: blocked{}})
	if want := "of nexus\n\n# Instructions of this project (they prevail over those above)\n\nsecret"; err != nil || got.Text != want || len(got.LeftOut) != 0 {
		t.Errorf("with nothing blocked: %q without %v, %v", got.Text, got.LeftOut, err)
	}
}

// A working directory that has become a named pipe is not waited for.
func TestWorkIsAPipe(t *testing.T) {
	work := filepath.Join(t.TempDir(), "work")
	if err := unix.Mkfifo(work, 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := prompt.Load(prompt.Options{Cwd: work})
	if err != nil || got.Text != prompt.Default || len(got.LeftOut) != 1 || !strings.Contains(got.LeftOut[0].Error(), "not a directory") {
		t.Errorf("got %q without %v, %v", got.Text, got.LeftOut, err)
	}
}

// The prompt does not outgrow its bound by many files: what comes first stays.
func TestTooMuchInAll(t *testing.T) {
	half := strings.Repeat("x", prompt.MaxSize/2+1)
	dir := tree(t, map[string]string{".git/HEAD": "", "NEXUS.md": half, "a/NEXUS.md": half})
	got, err := prompt.Load(prompt.Options{Cwd: filepath.Join(dir, "a")})
	if err != nil || got.Text != half || len(got.LeftOut) != 1 || !strings.Contains(got.LeftOut[0].Error(), filepath.Join("a", "NEXUS.md")) {
		t.Errorf("%d bytes without %v, %v", len(got.Text), got.LeftOut, err)
	}
}

// The home is a person's own, who is told.
func TestAPersonalFileThatIsNone(t *testing.T) {
	home := t.TempDir()
	if err := unix.Mkfifo(filepath.Join(home, "NEXUS.md"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := prompt.Load(prompt.Options{Home: home, Cwd: t.TempDir()}); err == nil || !strings.Contains(err.Error(), "is not a regular file") {
		t.Errorf("got %v", err)
	}
}

// Any user may put a .git and a NEXUS.md into a directory such as /tmp, above that of an
// agent: such text once became its system prompt.
func TestAnothersFilesAreLeftOut(t *testing.T) {
	if os.Geteuid() != 0 {
		return // only root can give files away
	}
	for _, tt := range []struct {
		name    string
		foreign []string // what belongs to another user
		text    string   // of the prompt in repo/a
		leftOut []string
	}{
		{"nothing", nil, "top of a", nil},
		{"the files of a shared directory", []string{"repo/.git", "repo/NEXUS.md"}, "of a", []string{"repo is not the project's root: its .git belongs to another user"}},
		{"the .git alone", []string{"repo/.git"}, "of a", []string{"repo is not the project's root: its .git belongs to another user"}},
		{"a file of the project", []string{"repo/NEXUS.md"}, "of a", []string{"repo/NEXUS.md: belongs to another user"}},
		{"that of the working directory", []string{"repo/a/NEXUS.md"}, "top", []string{"repo/a/NEXUS.md: belongs to another user"}},
		{"the directory above", []string{"repo"}, "of a", []string{"repo is not the project's root: it belongs to another user"}},
		{"the working directory", []string{"repo/a"}, "top", []string{"repo/a/NEXUS.md: is in a, which belongs to another user"}},
		{"a directory without .git further up", []string{"."}, "top of a", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := tree(t, map[string]string{"repo/.git": "", "repo/NEXUS.md": "top", "repo/a/NEXUS.md": "of a"})
			if err := os.Chmod(filepath.Join(dir, "repo"), 0o777|os.ModeSticky); err != nil {
				t.Fatal(err)
			}
			for _, name := range tt.foreign {
				if err := os.Chown(filepath.Join(dir, name), 12345, -1); err != nil {
					t.Fatal(err)
				}
			}
			got, err := prompt.Load(prompt.Options{Cwd: filepath.Join(dir, "repo/a")})
			text := strings.Replace(got.Text, "\n\n# Instructions for a (they prevail over those above)\n\n", " ", 1)
			if err != nil || text != tt.text || len(got.LeftOut) != len(tt.leftOut) {
				t.Fatalf("got %q without %v, %v, want %q", text, got.LeftOut, err, tt.text)
			}
			for i, want := range tt.leftOut {
				if why := got.LeftOut[i].Error(); !strings.HasSuffix(why, filepath.Join(dir, want)) {
					t.Errorf("left out: %s, want %s", why, want)
				}
			}
		})
	}
}
