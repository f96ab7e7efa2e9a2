package main

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"nexus.internal/bridge/sessions"
	"nexus.internal/cmd/internal/config"
	"nexus.internal/supervisor"
	"nexus.internal/supervisor/cluster/identity"
)

// The files by which a machine proves itself, to other machines and to clients, are out of bounds for each process of an agent, and so is the directory in
// which nexus cluster init made them, while they are in it: it has the authority's key, and the other machines'.
func TestFilesOfMachinesArePrivate(t *testing.T) {
	dir := t.TempDir()
	two := []identity.Address{{Machine: "a", Listen: "127.0.0.1:1"}, {Machine: "b", Listen: "127.0.0.1:2"}}
	if _, err := identity.Init(dir, identity.Cluster{Machines: two}); err != nil {
		t.Fatal(err)
	}
	elsewhere := t.TempDir()
	copied := filepath.Join(elsewhere, "a")
	if err := os.CopyFS(copied, os.DirFS(filepath.Join(dir, "a"))); err != nil {
		t.Fatal(err)
	}
	links := t.TempDir()
	for _, name := range []string{"certificate.pem", "key.pem"} {
		if err := os.Symlink(filepath.Join(dir, "a", name), filepath.Join(links, name)); err != nil {
			t.Fatal(err)
		}
	}
	cluster := func(files string) []string { return (&clusterOptions{files: files}).private() }
	listen := func(dir string) []string {
		return (&remoteOptions{listen: "127.0.0.1:0", cert: filepath.Join(dir, "certificate.pem"), key: filepath.Join(dir, "key.pem")}).private()
	}
	var all []string
	for _, taken := range []bool{false, true} {
		for _, tt := range []struct {
			name      string
			got, want []string
		}{
			{"of a cluster, copied to their machine", cluster(copied), []string{copied}},
			{"of a cluster, beside their authority", cluster(filepath.Join(dir, "a")), []string{filepath.Join(dir, "a"), dir}},
			{"of a NATS that is there", (&clusterOptions{credentials: "/nats.creds"}).private(), []string{"/nats.creds"}},
			{"for clients, copied to their machine", listen(copied), []string{filepath.Join(copied, "certificate.pem"), filepath.Join(copied, "key.pem")}},
			{"for clients, beside their authority", listen(filepath.Join(dir, "a")), []string{filepath.Join(dir, "a", "certificate.pem"), filepath.Join(dir, "a", "key.pem"), dir}},
			{"for clients, linked from elsewhere", listen(links), []string{filepath.Join(links, "certificate.pem"), filepath.Join(links, "key.pem"), dir}},
			{"for nobody", (&remoteOptions{}).private(), nil},
		} {
			if !slices.Equal(tt.got, tt.want) {
				t.Errorf("%s, the authority's key taken away %t: %q, want %q", tt.name, taken, tt.got, tt.want)
			}
			all = append(all, tt.got...)
		}
		if !taken {
			if err := os.Remove(filepath.Join(dir, "ca-key.pem")); err != nil {
				t.Fatal(err)
			}
		}
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
