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
func installer(t *testing.T) (dir string, install func(variables ...string)) {
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
	return dir, func(variables ...string) {
		t.Helper()
		args := append([]string{"-f", filepath.Join(top, "Makefile"), "-C", dir, "install"}, variables...)
		cmd := exec.CommandContext(t.Context(), "make", args...)
		cmd.Env = append(os.Environ(), "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "GO=/nowhere/go") // as sudo has it, without go
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("make install: %v\n%s", err, out)
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
	stage := filepath.Join(t.TempDir(), "a stage")
	_, install := installer(t)
	install("DESTDIR="+stage, "PREFIX=/usr/local")
	for dir, want := range map[string][]string{
		"bin":             {"nexus", "nexus-child", "nexus-rpc"},
		"share/doc/nexus": {"CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "NOTICE", "README.md", "SPEC.md", "bridge", "child", "cmd", "fixtures", "supervisor"},
		// SPEC links to them by these paths.
		"share/doc/nexus/bridge":     {"METHODS.md", "SECURITY.md"},
		"share/doc/nexus/child":      {"AGENT.md"},
		"share/doc/nexus/cmd":        {"OPERATIONS.md", "nexus-bench"},
		"share/doc/nexus/supervisor": {"SUPERVISION.md"},
	} {
		if diff := cmp.Diff(want, names(t, filepath.Join(stage, "usr/local", dir))); diff != "" {
			t.Errorf("what is in %s (-want +got):\n%s", dir, diff)
		}
	}
	if dead := deadLinks(t, filepath.Join(stage, "usr/local/share/doc/nexus")); len(dead) > 0 {
		t.Errorf("links of installed pages that lead nowhere: %q", dead)
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
	prefix := filepath.Join(t.TempDir(), "a prefix")
	source, install := installer(t)
	install("PREFIX=" + prefix)
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
	install("PREFIX=" + prefix)
	ask("create", "after") // by the program that is there now
	ask("send", "before", "hello")
	if diff := cmp.Diff([]string{"nexus", "nexus-child", "nexus-rpc"}, names(t, bin)); diff != "" {
		t.Errorf("what is installed (-want +got):\n%s", diff)
	}
	running, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", server.Process.Pid))
	if err == nil && !strings.HasSuffix(running, " (deleted)") {
		t.Errorf("the server runs %s, which was not replaced", running)
	}
}
