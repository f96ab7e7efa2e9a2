package main_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// inBoth are what the server needs of systemd, whoever's service it is.
var inBoth = map[string]string{
	"[Service]Type": "notify", "[Service]NotifyAccess": "main", "[Service]ExecStart": "/usr/local/bin/nexus serve",
	"[Service]ExecReload": "/bin/kill -HUP $MAINPID", "[Service]WatchdogSec": "30s", "[Service]KillMode": "mixed", "[Service]Delegate": "yes",
	"[Service]DelegateSubgroup": "nexus-server", "[Service]OOMPolicy": "continue", "[Service]Restart": "on-failure", "[Service]RestartPreventExitStatus": "78", "[Service]StateDirectoryMode": "0700",
}

// The units say what the server needs of systemd, and systemd, where it is, understands all of
// it.
func TestUnits(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, of string
		settings map[string]string
	}{
		{"../../fixtures/systemd/nexus.service", "--system", map[string]string{
			"[Service]EnvironmentFile": "-/etc/nexus/keys", "[Service]User": "nexus", "[Install]WantedBy": "multi-user.target",
		}},
		{"../../fixtures/systemd/user/nexus.service", "--user", map[string]string{
			"[Service]EnvironmentFile": "-%h/.config/nexus/keys", "[Service]User": "", "[Install]WantedBy": "default.target",
		}},
	} {
		t.Run(test.of, func(t *testing.T) {
			text, err := os.ReadFile(test.name)
			if err != nil {
				t.Fatal(err)
			}
			settings := unitSettings(t, string(text))
			for _, wanted := range []map[string]string{inBoth, test.settings} {
				for name, want := range wanted {
					if got := settings[name]; got != want {
						t.Errorf("%s is %q, want %q", name, got, want)
					}
				}
			}
			// In a directory above the home, an agent could make nothing (AGENT §4.5).
			work := settings["[Service]WorkingDirectory"]
			made := false
			for _, dir := range strings.Fields(settings["[Service]StateDirectory"]) {
				made = made || work == "%S/"+dir
			}
			home := "%h/.nexus3"
			if _, rest, ok := strings.Cut(settings["[Service]Environment"], "NEXUS_HOME="); ok {
				home, _, _ = strings.Cut(rest, " ")
			}
			if within, err := filepath.Rel(work, home); err != nil || !made || home == "" || !strings.HasPrefix(within, "../") {
				t.Errorf("WorkingDirectory is %q, made: %v, the home %q, %v; want one that systemd makes, and that is not above the home", work, made, home, err)
			}
			verifyUnit(t, string(text), test.of)
		})
	}
}

// unitSettings are the settings of a unit, by their sections and names.
func unitSettings(t *testing.T, text string) map[string]string {
	settings, section := map[string]string{}, ""
	for line := range strings.Lines(text) {
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
	return settings
}

// verifyUnit has systemd, where it is, read a unit of the system's manager or of a user's.
func verifyUnit(t *testing.T, text, of string) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		return
	}
	here := filepath.Join(t.TempDir(), "nexus.service")
	ours := strings.Replace(text, "/usr/local/bin/nexus", filepath.Join(programs, "nexus"), 1)
	if err := os.WriteFile(here, []byte(ours), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(analyze, "verify", of, here)
	cmd.Env = append(os.Environ(), "XDG_RUNTIME_DIR="+t.TempDir())
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("systemd-analyze: %v\n%s", err, out)
	}
	for line := range strings.Lines(string(out)) {
		// An older systemd does without that one.
		if strings.Contains(line, "nexus.service") && !strings.Contains(line, "'DelegateSubgroup'") {
			t.Error(line)
		}
	}
}
