package sandbox_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"nexus.internal/child/sandbox"
	"nexus.internal/child/sandbox/sandboxtest"
)

// another is a group that the user of asUser is in, beside its own.
const another = 65533

// asUser runs a role of the test binary as a user, in the directory that placeFor makes
// for the user, and returns what it says.
func asUser(t *testing.T, uid uint32, name string, args ...string) string {
	t.Helper()
	base, argv := placeFor(t, uid)
	cmd := exec.Command(argv[0], append([]string{"role", name, base}, args...)...)
	cmd.Env = append(os.Environ(), "TMPDIR="+base)
	if uid != 0 && os.Getuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid, Groups: []uint32{another}}}
	}
	text, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v", err)
	}
	return strings.ReplaceAll(string(text), base, "BASE")
}

// ran is what a program writes, or why it does not start.
func ran(rules sandbox.Rules, dir, script string) string {
	p, err := sandbox.Start(context.Background(), sandbox.Spec{Argv: sh(script), Dir: dir, Rules: rules})
	if err != nil {
		return err.Error()
	}
	defer p.Close()
	text, _ := io.ReadAll(p.Stdout())
	return strings.ReplaceAll(strings.TrimSpace(string(text)), "\n", " ")
}

// must is for what a role takes for granted.
func must(err error) {
	if err != nil {
		panic(err)
	}
}

// closed runs programs while a directory above something blocked cannot be entered,
// which its owner can open again.
func closed(args []string) {
	work := filepath.Join(args[0], "work")
	if args[1] == "bare" {
		must(sandboxtest.WithoutNamespaces())
	}
	above, secret := filepath.Join(work, "x"), filepath.Join(work, "x", "deep", "secret")
	must(os.MkdirAll(secret, 0o755))
	must(os.WriteFile(filepath.Join(secret, "file"), []byte("canary"), 0o644))
	if args[1] == "group" {
		must(os.Chown(above, -1, another))
	}
	for _, kind := range []string{"trusted", "sandboxed"} {
		rules := sandbox.Rules{Confinement: sandbox.Always, ReadWrite: []string{work}, Blocked: []string{secret, "/root/none/none"}}
		if kind == "trusted" {
			rules.ReadOnly, rules.Network = []string{"/"}, true
		}
		must(os.Chmod(above, 0))
		fmt.Println(kind+":", ran(rules, work, "exec 2>&1; cat src/file; chmod 755 x; ls x/deep/secret; cd x/deep/secret; cat file; chmod 777 file; touch -d @1 file; true"))
		must(os.Chmod(above, 0o755))
		info, err := os.Stat(filepath.Join(secret, "file"))
		must(err)
		fmt.Println(info.Mode(), info.ModTime().Unix() == 1)
	}
}

// What is blocked is so also if a directory above it cannot be entered when the program
// starts: the program may open it again.
func TestBlockedBelowAClosedDirectory(t *testing.T) {
	const uid = 65534 // root enters all directories
	for how, reason := range map[string]string{"views": "Read-only file system", "group": "Read-only file system", "bare": "Operation not permitted"} {
		if os.Getuid() != 0 && how == "group" {
			continue // it takes root to be in another group
		}
		text := asUser(t, uid, "closed", how)
		if strings.Count(text, "-rw-r--r-- false\n") != 2 || strings.Count(text, ": canary") != 2 || strings.Count(text, "canary") != 2 ||
			strings.Count(text, "chmod: changing permissions of 'x': "+reason) != 2 {
			t.Errorf("%s: %s", how, text)
		}
	}
}

// kept runs programs while it cannot make their namespaces, for reasons that other
// programs could bring about, and says whether they see names in the home.
func kept(args []string) {
	work := filepath.Join(args[0], "work")
	rules := sandbox.Rules{
		Confinement: sandbox.Always, ReadWrite: []string{work}, ReadOnly: []string{"/"}, Blocked: []string{filepath.Join(work, ".nexus3")}, Network: true,
	}
	list := func(when string) { fmt.Println(when+":", ran(rules, "", "ls "+work+"/.nexus3")) }
	within := filepath.Join(work, "a", "b") // in a directory that is to be closed
	must(errors.Join(os.MkdirAll(within, 0o755), os.Chdir(within)))

	if args[1] == "memory" {
		without := make(chan bool)
		go func() {
			runtime.LockOSThread() // it ends with the goroutine
			must(sandboxtest.WithoutFileSystems())
			list("without memory")
			close(without)
		}()
		<-without
		list("later")
		return
	}
	if args[1] == "group" {
		must(os.Chown(filepath.Dir(within), -1, another))
	}
	must(os.Chmod(filepath.Dir(within), 0))
	list("directory closed")
	must(os.Chmod(filepath.Dir(within), 0o755))
	list("later")
	must(sandboxtest.WithoutNamespaces())
	list("namespaces used up")
}

// No program goes without namespaces because of what another did to a directory, or used
// up: not for longer than one program, and not after a program has had them.
func TestNamespacesAreKept(t *testing.T) {
	const later = "later: \nnamespaces used up: start /bin/sh: confine it as earlier programs were: start it: operation not permitted\n"
	for how, want := range map[string]string{
		"memory": "without memory: sessions temp\nlater: \n",
		"views":  "directory closed: \n" + later,
		"group":  "directory closed: start /bin/sh: working directory: chdir BASE/work/a/b: permission denied\n" + later,
	} {
		if os.Getuid() != 0 && how == "group" {
			continue // it takes root to be in another group
		}
		if diff := cmp.Diff(want, asUser(t, 65534, "kept", how)); diff != "" {
			t.Error(diff)
		}
	}
}

// above tries to change the directories above a home, and does beside it what programs
// do as a rule.
func above(args []string) {
	work := filepath.Join(args[0], "work")
	if args[1] == "bare" {
		must(sandboxtest.WithoutNamespaces())
	}
	home, self := filepath.Join(work, "cfg", "home"), role("")[0]
	must(errors.Join(os.MkdirAll(home, 0o755), os.WriteFile(filepath.Join(work, "file"), nil, 0o644), os.Symlink("file", filepath.Join(work, "link")),
		os.MkdirAll(filepath.Join(work, "cfg", "own", "sub"), 0o755), os.WriteFile(filepath.Join(work, "cfg", "program"), nil, 0o644)))
	for _, kind := range []string{"trusted", "sandboxed", "everywhere"} {
		rules := sandbox.Rules{Confinement: sandbox.Always, ReadWrite: []string{work}, ReadOnly: []string{self}, Blocked: []string{home, filepath.Join(work, "none", "none")}}
		switch kind {
		case "trusted":
			rules.ReadOnly, rules.Network = []string{"/"}, true
		case "everywhere":
			rules.ReadWrite = []string{"/"}
		}
		for _, path := range []string{"cfg", ".", "../.."} {
			p, err := sandbox.Start(context.Background(), sandbox.Spec{Argv: role("change", filepath.Join(work, path)), Dir: work, Rules: rules})
			must(err)
			text, _ := io.ReadAll(p.Stdout())
			p.Close()
			var changed []string
			for _, word := range strings.Fields(string(text)) {
				if regexp.MustCompile("chmod|chown|times|xattr").MatchString(word) {
					changed = append(changed, word)
				}
			}
			fmt.Printf("%s %s: %s\n", kind, path, changed)
		}
		fmt.Printf("%s: %s\n", kind, ran(rules, work, `
			exec 2>&1
			mkdir src/a && echo x > src/a/x && chmod 600 src/a/x && mv src/a cfg/own/a && cp -p cfg/own/a/x file && touch -d @86400 file && chmod 700 file &&
			test "$(stat -c %a-%Y file)" = 700-86400 && chmod 750 cfg/own src && touch cfg/own && mv cfg/own/a cfg/own/b && mv cfg/own/b src/a &&
			tar -cf src/x.tar src/a && tar -xpf src/x.tar -C cfg/own && rm -r src/a src/x.tar cfg/own/src && printf '#!/bin/sh\necho fine' > cfg/program &&
			chmod 755 cfg/program && cfg/program
			chmod 755 cfg/own src; cd cfg && ls home`))
	}
}

// No program changes the mode, the owner or times of a directory above a home, by which
// it would take the home from the server; what lies beside the home stays the program's.
func TestDirectoriesAboveAHome(t *testing.T) {
	for _, uid := range []uint32{0, 65534} {
		for _, how := range []string{"views", "bare"} {
			if os.Getuid() != 0 && uid == 0 {
				continue // an ordinary user's row says it
			}
			var want strings.Builder
			for _, kind := range []string{"trusted", "sandboxed", "everywhere"} {
				fmt.Fprintf(&want, "%s cfg: []\n%s .: []\n%s ../..: []\n%s: fine\n", kind, kind, kind, kind)
			}
			if diff := cmp.Diff(want.String(), asUser(t, uid, "above", how)); diff != "" {
				t.Errorf("user %d, %s: %s", uid, how, diff)
			}
		}
	}
}
