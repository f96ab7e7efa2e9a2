package main

import (
	"os"
	"strings"
	"testing"

	"nexus.internal/child/sandbox/sandboxtest"
)

// A child that is told so runs on a kernel without Landlock.
func init() {
	if os.Getenv("NEXUS_TEST_NO_LANDLOCK") == "1" {
		if err := sandboxtest.WithoutLandlock(); err != nil {
			panic(err)
		}
	}
}

// Where the kernel cannot confine programs, a sandboxed agent runs none, nothing
// runs unasked for the reason that it only looks, and a trusted one is told.
func TestWithoutLandlock(t *testing.T) {
	for _, tt := range []struct{ name, preset, approvals, message, want string }{
		{"sandboxed", "sandboxed", "allow", "run ls", "shell: nothing can be run under these permissions: start /bin/"},
		{"sandboxed files", "sandboxed", "allow", "list", "[the directory is empty]"},
		{"looking", "trusted", "deny", "run ls", "shell: the preset trusted asks before programs are run; that needs an approval"},
		{"approved", "trusted", "allow", "run echo hello", "hello\n[this was not confined to the working directory: the kernel cannot confine programs"},
		{"yolo", "yolo", "deny", "run echo hello", "hello\n[exit status 0]"},
	} {
		p := command(t, t.TempDir(), []string{"NEXUS_TEST_NO_LANDLOCK=1"}, "--preset", tt.preset, "--approvals", tt.approvals)
		p.start()
		if got := p.result("1", tt.message); !strings.HasPrefix(got, tt.want) {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
		p.stdin.Close()
		p.wait()
	}
	p := command(t, t.TempDir(), []string{"NEXUS_TEST_NO_LANDLOCK=1"}, "--permissions", `{"preset":"yolo","blocked_paths":["/srv"]}`)
	p.start()
	if got := p.result("1", "run ls"); !strings.HasPrefix(got, "shell: nothing can be run under these permissions") {
		t.Errorf("with a path that is blocked: %q", got)
	}
	p.stdin.Close()
	p.wait()
}
