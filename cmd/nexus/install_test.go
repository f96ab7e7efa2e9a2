package main_test

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// installer is a folder like that of the sources, whose programs are built already.
func installer(t *testing.T) (dir string, run func(target string, variables ...string)) {
	t.Helper()
	top, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	dir = t.TempDir()
	for name, target := range map[string]string{
		"bin": programs, "bridge": "", "child": "", "cmd": "", "fixtures": "", "supervisor": "", "CHANGELOG.md": "", "CONTRIBUTING.md": "", "LICENSE": "", "NOTICE": "", "README.md": "", "SPEC.md": "",
	} {
		if target == "" {
			target = filepath.Join(top, name)
		}
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	return dir, func(target string, variables ...string) {
		t.Helper()
		args := append([]string{"-f", filepath.Join(top, "Makefile"), "-C", dir, target}, variables...)
		cmd := exec.CommandContext(t.Context(), "make", args...)
		cmd.Env = append(os.Environ(), "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "GO=/nowhere/go") // as sudo has it, without go
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("make %s: %v\n%s", target, err, out)
		}
	}
}

func names(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}

// A package is made of what make install puts below DESTDIR.
func TestInstallStaged(t *testing.T) {
	t.Parallel()
	stage := filepath.Join(t.TempDir(), "a stage")
	_, run := installer(t)
	run("install", "DESTDIR="+stage, "PREFIX=/usr/local")
	for dir, want := range map[string][]string{
		"bin":             {"nexus", "nexus-child", "nexus-cluster", "nexus-rpc"},
		"share/doc/nexus": {"CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "NOTICE", "README.md", "SPEC.md", "bridge", "child", "cmd", "fixtures", "supervisor"},
		// SPEC links to them by these paths.
		"share/doc/nexus/bridge":     {"METHODS.md", "SECURITY.md"},
		"share/doc/nexus/child":      {"AGENT.md", "FOREIGN.md"},
		"share/doc/nexus/cmd":        {"OPERATIONS.md", "nexus-bench"},
		"share/doc/nexus/supervisor": {"SUPERVISION.md"},
		"share/man/man1":             {"nexus-child.1", "nexus-cluster.1", "nexus-rpc.1", "nexus.1"},
		// Where bash, zsh and fish look for them.
		"share/bash-completion/completions": {"nexus", "nexus-rpc"},
		"share/zsh/site-functions":          {"_nexus", "_nexus-rpc"},
		"share/fish/vendor_completions.d":   {"nexus-rpc.fish", "nexus.fish"},
	} {
		if diff := cmp.Diff(want, names(t, filepath.Join(stage, "usr/local", dir))); diff != "" {
			t.Errorf("what is in %s (-want +got):\n%s", dir, diff)
		}
	}
	if dead := deadLinks(t, filepath.Join(stage, "usr/local/share/doc/nexus")); len(dead) > 0 {
		t.Errorf("links of installed pages that lead nowhere: %q", dead)
	}
}

// What is installed in a prefix of the system is removed again, and so is what is installed in
// a home, where systemd looks for units of its own.
func TestUninstall(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	for _, test := range []struct {
		name, prefix string
		units        []string
	}{
		{"of the system", filepath.Join(t.TempDir(), "a prefix"), []string{"lib/systemd/system/nexus.service", "lib/systemd/user/nexus.service"}},
		{"of a user", filepath.Join(home, ".local"), []string{"share/systemd/user/nexus.service"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, run := installer(t)
			run("install", "PREFIX="+test.prefix, "SYSTEMD=yes")
			files := filesBelow(t, test.prefix)
			if i := slices.IndexFunc(files, func(name string) bool { return strings.HasSuffix(name, ".service") }); i < 0 || !slices.Equal(files[i:i+len(test.units)], test.units) {
				t.Errorf("the units are not %q of %q", test.units, files)
			}
			for _, unit := range test.units {
				text, err := os.ReadFile(filepath.Join(test.prefix, unit))
				if err != nil || !strings.Contains(string(text), "\nExecStart="+test.prefix+"/bin/nexus serve\n") {
					t.Errorf("%s does not start what was installed: %v\n%s", unit, err, text)
				}
			}
			keep := filepath.Join(test.prefix, "share/doc/nexus/of-somebody-else")
			if err := os.WriteFile(keep, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			run("uninstall", "PREFIX="+test.prefix, "SYSTEMD=yes")
			if diff := cmp.Diff([]string{"share/doc/nexus/of-somebody-else"}, filesBelow(t, test.prefix)); diff != "" {
				t.Errorf("what is left (-want +got):\n%s", diff)
			}
			if got := names(t, filepath.Join(test.prefix, "share/doc/nexus")); len(got) != 1 {
				t.Errorf("%q are left of the pages", got)
			}
		})
	}
}

// filesBelow are the regular files below root, relative to it.
func filesBelow(t *testing.T, root string) (files []string) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			inside, _ := filepath.Rel(root, path)
			files = append(files, inside)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// The shells that are here understand what completes words in them, and nexus completes words
// when asked as that does.
func TestInstalledCompletions(t *testing.T) {
	t.Parallel()
	prefix := t.TempDir()
	_, run := installer(t)
	run("install", "PREFIX="+prefix)
	for shell, file := range map[string]string{
		"bash": "share/bash-completion/completions/%s", "zsh": "share/zsh/site-functions/_%s", "fish": "share/fish/vendor_completions.d/%s.fish",
	} {
		if _, err := exec.LookPath(shell); err != nil {
			continue
		}
		for _, program := range []string{"nexus", "nexus-rpc"} {
			if out, err := exec.CommandContext(t.Context(), shell, "-n", filepath.Join(prefix, fmt.Sprintf(file, program))).CombinedOutput(); err != nil {
				t.Errorf("%s of %s: %v\n%s", shell, program, err, out)
			}
		}
	}
	// As bash does, with what bash-completion gives it.
	script := `_get_comp_words_by_ref() { words=(nexus-rpc crea); cur=crea; prev=nexus-rpc; cword=1; }
. "$1/share/bash-completion/completions/nexus-rpc"
complete -p nexus-rpc; PATH="$1/bin:$PATH" COMP_LINE='nexus-rpc crea' COMP_POINT=14 COMP_TYPE=9
COMP_WORDS=(nexus-rpc crea) COMP_CWORD=1; __start_nexus-rpc nexus-rpc; echo "${COMPREPLY[@]}"`
	if _, err := exec.LookPath("bash"); err == nil {
		out, err := exec.CommandContext(t.Context(), "bash", "--norc", "-c", script, "bash", prefix).CombinedOutput()
		if err != nil || !strings.Contains(string(out), "\ncreate") {
			t.Errorf("bash does not complete crea to create: %v\n%s", err, out)
		}
	}
}

// What a page links to is there, in the sources and, by TestInstallStaged, where pages are
// installed.
func TestLinks(t *testing.T) {
	if dead := deadLinks(t, "../.."); len(dead) > 0 {
		t.Errorf("links that lead nowhere: %q", dead)
	}
}

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ +(.*)$`)
	noSlug  = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
)

// deadLinks finds the relative links of the pages below root that lead to no file, or to no
// heading of its page, or out of root.
func deadLinks(t *testing.T, root string) (dead []string) {
	t.Helper()
	found := 0
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != root && (strings.HasPrefix(entry.Name(), ".") || entry.Name() == "node_modules"):
			return fs.SkipDir
		case entry.IsDir() || filepath.Ext(path) != ".md":
			return nil
		}
		text, err := os.ReadFile(path)
		for _, match := range link.FindAllStringSubmatch(string(text), -1) {
			if strings.Contains(match[1], "://") {
				continue
			}
			found++
			name, anchor, _ := strings.Cut(match[1], "#")
			target := path
			if name != "" {
				target = filepath.Join(filepath.Dir(path), filepath.FromSlash(name))
			}
			inside, err := filepath.Rel(root, target)
			page, unread := os.ReadFile(target)
			if err != nil || !filepath.IsLocal(inside) || unread != nil || anchor != "" && !slices.Contains(anchors(page), anchor) {
				dead = append(dead, path+": "+match[1])
			}
		}
		return err
	})
	if err != nil || found == 0 {
		t.Fatalf("found %d links: %v", found, err)
	}
	return dead
}

// anchors are the names by which links lead to the headings of a page.
func anchors(page []byte) (names []string) {
	for _, match := range heading.FindAllStringSubmatch(string(page), -1) {
		names = append(names, strings.ReplaceAll(noSlug.ReplaceAllString(strings.ToLower(match[1]), ""), " ", "-"))
	}
	return names
}

// make install puts the programs where they run already: a file that is executed
// cannot be written to ("Text file busy").
func TestInstallWhileRunning(t *testing.T) {
	t.Parallel()
	prefix := filepath.Join(t.TempDir(), "a prefix")
	source, run := installer(t)
	run("install", "PREFIX="+prefix)
	bin := filepath.Join(prefix, "bin")
	server := exec.Command(filepath.Join(bin, "nexus"), "serve", "0", "--home", filepath.Join(source, "home"))
	server.Env = append(os.Environ(), "NEXUS3_API_KEY=")
	stdout, err := server.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := errors.Join(server.Process.Signal(syscall.SIGTERM), server.Wait()); err != nil {
			t.Errorf("end the server: %v", err)
		}
	}()
	var port string
	for lines := bufio.NewScanner(stdout); port == "" && lines.Scan(); {
		if _, url, ok := strings.Cut(lines.Text(), "nexus listening on http://"); ok {
			port = url[strings.LastIndex(url, ":")+1:]
		}
	}
	ask := func(args ...string) {
		t.Helper()
		args = append([]string{"--home", filepath.Join(source, "home"), "--port", port}, args...)
		cmd := exec.CommandContext(t.Context(), filepath.Join(bin, "nexus-rpc"), args...)
		cmd.Env = server.Env
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("nexus-rpc %v: %v\n%s", args, err, out)
		}
	}
	ask("create", "before")
	run("install", "PREFIX="+prefix)
	ask("create", "after") // by the program that is there now
	ask("send", "before", "hello")
	if diff := cmp.Diff([]string{"nexus", "nexus-child", "nexus-cluster", "nexus-rpc"}, names(t, bin)); diff != "" {
		t.Errorf("what is installed (-want +got):\n%s", diff)
	}
	running, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", server.Process.Pid))
	if err == nil && !strings.HasSuffix(running, " (deleted)") {
		t.Errorf("the server runs %s, which was not replaced", running)
	}
}
