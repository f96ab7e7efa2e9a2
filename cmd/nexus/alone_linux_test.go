package main_test

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// isNotServedAlone has the home of a machine of a cluster, whose server has ended, be served without the others, who may have its agents: that is refused, and no verb
// starts a server there, unless somebody says that it is meant.
func isNotServedAlone(t *testing.T, s *live) {
	t.Helper()
	for program, args := range map[string][]string{
		"nexus":     {"serve", "0", "--home", s.home},
		"nexus-rpc": {"list", "--home", s.home},
	} {
		cmd := exec.Command(filepath.Join(programs, program), args...)
		cmd.Env = []string{"PATH=/usr/bin:/bin", "HOME=" + s.home, "NEXUS_PORT=1"}
		out, err := cmd.CombinedOutput()
		if err == nil || !strings.Contains(string(out), "is the home of the machine b of the cluster nexus") || !strings.Contains(string(out), "--cluster-files DIR") {
			t.Errorf("%s %s: %v\n%s", program, args, err, out)
		}
	}
	s.prepare = func(cmd *exec.Cmd) { cmd.Args = append(cmd.Args, "--alone") }
	s.again()
	if answer := s.send("worker", "echo alone"); !strings.Contains(answer, "alone") {
		t.Errorf("by --alone: %s", answer)
	}
	s.end()
}
