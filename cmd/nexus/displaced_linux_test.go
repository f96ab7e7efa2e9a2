package main_test

import (
	"net"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Where something else listens at the default port, a verb starts the home's server on
// another one, where all verbs find it; a port that was named is not replaced.
func TestDefaultPortIsTaken(t *testing.T) {
	if l, err := net.Listen("tcp", "127.0.0.1:8765"); err == nil { // else somebody has it already
		other := httptest.NewUnstartedServer(http.NotFoundHandler())
		_ = other.Listener.Close()
		other.Listener = l
		other.Start()
		defer other.Close()
	}
	home := filepath.Join(t.TempDir(), "home")
	rpc := func(args ...string) (stdout, stderr string, err error) {
		var out, said strings.Builder
		cmd := exec.CommandContext(t.Context(), filepath.Join(programs, "nexus-rpc"), args...)
		cmd.Env = []string{"HOME=" + home, "NEXUS_HOME=" + home}
		cmd.Stdout, cmd.Stderr = &out, &said
		err = cmd.Run()
		return out.String(), said.String(), err
	}
	for _, args := range [][]string{{"list", "--no-start"}, {"send", "a", "hello"}, {"list", "--port", "8765"}} {
		if out, said, err := rpc(args...); err == nil {
			t.Errorf("%q: %s%s", args, out, said)
		}
	}
	_, said, err := rpc("create", "a")
	defer func() {
		if _, said, err := rpc("shutdown"); err != nil {
			t.Errorf("%v: %s", err, said)
		}
	}()
	if port := regexp.MustCompile(`^nexus-rpc: started a server \(process \d+, port (\d+), log `).FindStringSubmatch(said); err != nil || port == nil || port[1] == "8765" {
		t.Fatalf("create: %v: %s", err, said)
	}
	if out, said, err := rpc("send", "a", "echo found"); err != nil || out != "found\n" {
		t.Errorf("send: %v: %s%s", err, out, said)
	}
	if out, _, _ := rpc("detect"); !strings.HasPrefix(out, "nexus_server ") {
		t.Errorf("detect: %s", out)
	}
}
