package main

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"nexus.internal/bridge/sessions"
	"nexus.internal/cmd/internal/config"
	"nexus.internal/supervisor"
)

// The files that a machine of a cluster shows are out of bounds for each process of an agent, and so is the directory of the authority that made them, while they are in it.
func TestFilesOfMachinesArePrivate(t *testing.T) {
	dir := t.TempDir()
	o := clusterOptions{files: filepath.Join(dir, "a")}
	if got := o.private(); !slices.Equal(got, []string{o.files}) {
		t.Errorf("copied to their machine: %q", got)
	}
	if err := os.WriteFile(filepath.Join(dir, "ca.pem"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	all := o.private()
	if !slices.Equal(all, []string{o.files, dir}) {
		t.Errorf("beside their authority: %q", all)
	}
	if got := (&clusterOptions{credentials: "/nats.creds"}).private(); !slices.Equal(got, []string{"/nats.creds"}) {
		t.Errorf("of a NATS that is there: %q", got)
	}
	c := &childFlags{child: "/opt/nexus-child", sessions: sessions.New("/home/me", nil), config: fixed{fixedSettings(t)}, private: all}
	for _, again := range []bool{false, true} {
		command, err := c.Command(supervisor.Spec{ID: "a"}, again)
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range all {
			if !slices.Contains(command.Become.Args, "--private-path="+path) {
				t.Errorf("again %t: %q is not in %q", again, path, command.Become.Args)
			}
		}
	}
}

// The logs of sessions have what all agents were told and have said: their directory is out of bounds for agents, wherever it lies.
func TestLogsOfSessionsArePrivate(t *testing.T) {
	cfg := &config.Config{}
	if got := (serveOptions{}).privateLogs(cfg); got != nil {
		t.Errorf("in the home: %q", got)
	}
	cfg.Logs.Dir = "/var/log/nexus"
	if got := (serveOptions{}).privateLogs(cfg); !slices.Equal(got, []string{"/var/log/nexus"}) {
		t.Errorf("by the configuration: %q", got)
	}
	if got := (serveOptions{logDir: "/srv/logs"}).privateLogs(cfg); !slices.Equal(got, []string{"/srv/logs"}) {
		t.Errorf("by --log-dir: %q", got)
	}
}
