package sandbox_test

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"nexus.internal/child/sandbox"
	"nexus.internal/protocol/safefile"
)

// environ runs env and gives what it says, but for the test's tag and the
// directory for temporary files, which is replaced by its variable.
func environ(t *testing.T, rules sandbox.Rules, extra ...string) []string {
	t.Helper()
	p := start(t, sandbox.Spec{Argv: sh(`env -u TAG -u PWD -u OLDPWD -u _ -u SHLVL | sed "s|$TMPDIR|TMPDIR|"`), Rules: rules, Env: extra})
	text, err := io.ReadAll(p.Stdout())
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	slices.Sort(lines)
	return lines
}

func TestEnvironment(t *testing.T) {
	for _, kv := range os.Environ() {
		name, _, _ := strings.Cut(kv, "=")
		t.Setenv(name, os.Getenv(name)) // so that it comes back
		os.Unsetenv(name)
	}
	home := t.TempDir()
	for name, value := range map[string]string{
		"PATH": "/usr/bin:relative:/bin:" + home + "/bin", "HOME": home, "USER": "u", "LOGNAME": "u", "LANG": "C.UTF-8", "LC_TIME": "C",
		"TZ": "UTC", "TERM": "xterm", "OPENAI_API_KEY": "canary", "NEXUS3_API_KEY": "canary", "NEXUS3_X": "canary",
		"LD_PRELOAD": "canary", "LD_LIBRARY_PATH": "canary", "BASH_ENV": "canary", "SSH_AUTH_SOCK": "canary", "PROXY": "p", "TMPDIR": "/tmp",
	} {
		t.Setenv(name, value)
	}
	named := []string{"PROXY", "LD_PRELOAD", "OPENAI_API_KEY", "NEXUS3_X", "openai_api_key"}
	for _, tt := range []struct {
		name  string
		rules sandbox.Rules
		extra []string
		want  []string
	}{
		{"unconfined", sandbox.Rules{}, nil, []string{
			"HOME=" + home, "LANG=C.UTF-8", "LC_TIME=C", "LOGNAME=u", "PATH=/usr/bin:/bin:" + home + "/bin", "TERM=dumb", "TMPDIR=TMPDIR", "TZ=UTC", "USER=u",
		}},
		{"sandboxed", sandbox.Rules{Confinement: sandbox.Always}, nil, []string{
			"HOME=TMPDIR", "LANG=C.UTF-8", "LC_TIME=C", "LOGNAME=u", "PATH=/usr/bin:/bin", "TERM=dumb", "TMPDIR=TMPDIR", "TZ=UTC", "USER=u",
		}},
		{"named and extra", sandbox.Rules{Inherit: named}, []string{"GITHUB_TOKEN=x", "TERM=vt100", "HOME=/h"}, []string{
			"GITHUB_TOKEN=x", "HOME=/h", "LANG=C.UTF-8", "LC_TIME=C", "LOGNAME=u", "PATH=/usr/bin:/bin:" + home + "/bin", "PROXY=p",
			"TERM=vt100", "TMPDIR=TMPDIR", "TZ=UTC", "USER=u",
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, environ(t, tt.rules, tt.extra...)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// The program has its input and output open and nothing of ours, although we
// were given a descriptor that is passed on.
func TestDescriptors(t *testing.T) {
	f, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	leaked, err := syscall.Dup(int(f.Fd())) // without close-on-exec
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(leaked)
	for name, rules := range confinements {
		if text, _ := output(t, rules, "", role("descriptors")...); text != "0 1 2 /dev/null\n" {
			t.Errorf("%s: %q", name, text)
		}
	}
}

// The directory for temporary files is the program's own, and goes with it.
func TestTemp(t *testing.T) {
	base := t.TempDir()
	t.Setenv("TMPDIR", base)
	text, exit := output(t, sandbox.Rules{}, "", sh("stat -c %a $TMPDIR; mkdir -p $TMPDIR/a/b; touch $TMPDIR/a/b/c; chmod -R 500 $TMPDIR; echo $TMPDIR")...)
	mode, dir, _ := strings.Cut(strings.TrimSpace(text), "\n")
	if exit.Code != 0 || mode != "700" || filepath.Dir(dir) != base {
		t.Errorf("exit %+v: %s", exit, text)
	}
	if left, err := os.ReadDir(base); len(left) > 0 || err != nil {
		t.Errorf("left is %v, %v", left, err)
	}
}

// The end of a program does not wait until what it left is removed: a tree of a million
// files held a call for half a minute.
func TestLeftovers(t *testing.T) {
	base := t.TempDir()
	file := filepath.Join(base, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	told, proceed := make(chan error), make(chan struct{})
	leftovers := safefile.NewRemover(func(err error) { told <- err; <-proceed })
	leftovers.Discard(filepath.Join(file, "none")) // cannot be removed, and keeps the Remover busy
	if err := <-told; err == nil {
		t.Error("no error")
	}
	temp := filepath.Join(base, "temp")
	for range 2 {
		if text, exit := output(t, sandbox.Rules{Temp: temp, Leftovers: leftovers}, "", sh("mkdir -p $TMPDIR/a/b; touch $TMPDIR/a/b/c")...); exit.Code != 0 {
			t.Errorf("exit %+v: %s", exit, text)
		}
	}
	left, _ := filepath.Glob(filepath.Join(temp, "*.discarded", "a", "b", "c"))
	if all, err := os.ReadDir(temp); err != nil || len(left) != 2 || len(all) != 2 {
		t.Errorf("left is %v of %v, %v", left, all, err)
	}
	close(proceed)
	if err := leftovers.Close(time.Hour); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(temp); err != nil || len(left) > 0 {
		t.Errorf("at last, left is %v, %v", left, err)
	}
}

func TestLimits(t *testing.T) {
	const show = "ulimit -c; ulimit -n; ulimit -f; ulimit -t; ulimit -d"
	for _, tt := range []struct {
		name   string
		limits sandbox.Limits
		want   string
	}{
		{"default", sandbox.Limits{}, "0\n4096\n16777216\n3600\nunlimited\n"}, // files in blocks of 512 bytes
		{"own", sandbox.Limits{Files: 100, FileSize: 1 << 20, CPU: 7, Data: 1 << 30}, "0\n100\n2048\n7\n1048576\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if text, _ := output(t, sandbox.Rules{Limits: tt.limits}, "", "dash", "-c", show); text != tt.want {
				t.Errorf("%q, want %q", text, tt.want)
			}
		})
	}
	_, exit := output(t, sandbox.Rules{Limits: sandbox.Limits{FileSize: 1000}}, t.TempDir(), "head", "-c", "2000", "/dev/zero")
	if exit != (sandbox.Exit{}) {
		t.Errorf("a pipe is no file: exit %+v", exit)
	}
	_, exit = output(t, sandbox.Rules{Limits: sandbox.Limits{FileSize: 1000}}, t.TempDir(), sh("exec head -c 2000 /dev/zero > f")...)
	if exit.Signal != syscall.SIGXFSZ {
		t.Errorf("exit %+v, want SIGXFSZ", exit)
	}
	_, exit = output(t, sandbox.Rules{Limits: sandbox.Limits{CPU: 1}}, "", sh("while :; do :; done")...)
	if exit.Signal != syscall.SIGKILL && exit.Signal != syscall.SIGXCPU {
		t.Errorf("exit %+v, want SIGXCPU", exit)
	}
}

// How much longer a program takes for the reaper and its confinement.
func BenchmarkStart(b *testing.B) {
	for _, name := range []string{"unconfined", "trusted", "sandboxed"} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				p, err := sandbox.Start(b.Context(), sandbox.Spec{Argv: sh(":"), Rules: confinements[name]})
				if err != nil {
					b.Fatal(err)
				}
				p.Close()
			}
		})
	}
	b.Run("bare", func(b *testing.B) {
		for b.Loop() {
			if p, err := os.StartProcess("/bin/sh", sh(":"), &os.ProcAttr{}); err != nil {
				b.Fatal(err)
			} else if _, err := p.Wait(); err != nil {
				b.Fatal(err)
			}
		}
	})
}
