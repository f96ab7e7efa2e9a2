package main_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The unit says what the server needs of systemd, and systemd, where it is,
// understands all of it.
func TestUnit(t *testing.T) {
	text, err := os.ReadFile("../../fixtures/systemd/nexus.service")
	if err != nil {
		t.Fatal(err)
	}
	settings, section := map[string]string{}, ""
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		name, value, ok := strings.Cut(line, "=")
		switch {
		case line == "" || line[0] == '#':
		case line[0] == '[':
			section = line
		case !ok || section == "":
			t.Errorf("%q is no setting of a section", line)
		default:
			settings[section+name] = value
		}
	}
	for name, want := range map[string]string{
		"Type": "notify", "NotifyAccess": "main", "ExecStart": "/usr/local/bin/nexus serve", "ExecReload": "/bin/kill -HUP $MAINPID", "WatchdogSec": "30s", "KillMode": "mixed",
		"Delegate": "yes", "DelegateSubgroup": "nexus-server", "OOMPolicy": "continue", "Restart": "on-failure",
		"EnvironmentFile": "-/etc/nexus/keys", "StateDirectoryMode": "0700",
	} {
		if got := settings["[Service]"+name]; got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	// In a directory above the home, an agent could make nothing (AGENT §4.5).
	work := settings["[Service]WorkingDirectory"]
	made := false
	for _, dir := range strings.Fields(settings["[Service]StateDirectory"]) {
		made = made || work == "%S/"+dir
	}
	_, rest, _ := strings.Cut(settings["[Service]Environment"], "NEXUS_HOME=")
	home, _, _ := strings.Cut(rest, " ")
	if within, err := filepath.Rel(work, home); err != nil || !made || home == "" || !strings.HasPrefix(within, "../") {
		t.Errorf("WorkingDirectory is %q, made: %v, the home %q, %v; want one that systemd makes, and that is not above the home", work, made, home, err)
	}
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		return
	}
	here := filepath.Join(t.TempDir(), "nexus.service")
	ours := strings.Replace(string(text), "/usr/local/bin/nexus", filepath.Join(programs, "nexus"), 1)
	if err := os.WriteFile(here, []byte(ours), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(analyze, "verify", here).CombinedOutput()
	if err != nil {
		t.Errorf("systemd-analyze: %v", err)
	}
	for line := range strings.Lines(string(out)) {
		// An older systemd does without that one.
		if strings.Contains(line, "nexus.service") && !strings.Contains(line, "'DelegateSubgroup'") {
			t.Error(line)
		}
	}
}
