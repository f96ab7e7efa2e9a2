package main

import (
	"bufio"
	"bytes"
	"crypto/x509"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// Another reader of images finds nothing wrong with ours, neither as OCI lays it out nor as
// docker load reads it, and both are the same image.
func TestImageIsValid(t *testing.T) {
	for _, s := range systems {
		if s.os != "linux" {
			continue
		}
		name := named(t, "nexus-*-image-"+s.String()+".tar")
		index, err := layout.ImageIndexFromPath(unpacked(t, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := validate.Index(index); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		image, err := tarball.ImageFromPath(name, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := validate.Image(image); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		config, err := image.ConfigFile()
		if err != nil || config.OS != s.os || config.Architecture != s.arch {
			t.Errorf("%s is for %s on %s, %v", name, config.OS, config.Architecture, err)
		}
		manifests, err := index.IndexManifest()
		if err != nil || len(manifests.Manifests) != 1 {
			t.Fatalf("the index has %v, %v", manifests, err)
		}
		laidOut, err := index.Image(manifests.Manifests[0].Digest)
		if err != nil {
			t.Fatal(err)
		}
		one, err1 := laidOut.ConfigName()
		other, err2 := image.ConfigName()
		if err1 != nil || err2 != nil || one != other {
			t.Errorf("%s has two images: %s %v, %s %v", name, one, err1, other, err2)
		}
	}
}

// container is a root with what is in the image of this machine's processor, and how it is run.
type container struct {
	root    string
	config  struct{ Entrypoint, Cmd, Env []string }
	workDir string
	user    []string // flags of unshare: as whom
}

func newContainer(t *testing.T) container {
	t.Helper()
	image := unpacked(t, named(t, "nexus-*-image-linux-"+runtime.GOARCH+".tar"))
	read := func(name string, into any) {
		t.Helper()
		text, err := os.ReadFile(filepath.Join(image, name))
		if err == nil {
			err = json.Unmarshal(text, into)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	var manifests []struct {
		Config string
		Layers []string
	}
	read("manifest.json", &manifests)
	c := container{}
	var config struct {
		Config struct {
			Entrypoint, Cmd, Env []string
			User, WorkingDir     string
		} `json:"config"`
	}
	read(manifests[0].Config, &config)
	c.config.Entrypoint, c.config.Cmd, c.config.Env, c.workDir = config.Config.Entrypoint, config.Config.Cmd, config.Config.Env, config.Config.WorkingDir
	c.root = unpacked(t, filepath.Join(image, manifests[0].Layers[0]))
	if err := os.Chmod(c.root, 0o755); err != nil { // a directory of the test's own
		t.Fatal(err)
	}
	for _, dir := range []string{"proc", "dev"} { // as a container's runtime makes them
		if err := os.Mkdir(filepath.Join(c.root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if uid, gid, ok := strings.Cut(config.Config.User, ":"); ok && os.Geteuid() == 0 {
		c.user = []string{"--setgid=" + gid, "--setuid=" + uid}
	}
	return c
}

// inRoot is how a process is started in the container: it is the first one of its own.
const inRoot = `mount -t proc proc "$1/proc"; mount --rbind /dev "$1/dev"; root="$1" dir="$2"; shift 2
exec unshare --root="$root" --wd="$dir" "$@"`

// command is a program in the container; namespaces of its own are made for the first one.
func (c container) command(t *testing.T, args ...string) *exec.Cmd {
	flags := []string{"--mount", "--pid", "--fork", "--kill-child"}
	if os.Geteuid() != 0 {
		flags = append(flags, "--map-root-user")
	}
	flags = append(flags, "sh", "-euc", inRoot, "sh", c.root, c.workDir)
	cmd := exec.CommandContext(t.Context(), "unshare", append(append(flags, c.user...), args...)...)
	cmd.Env = append(c.config.Env, "NEXUS_PORT=0")
	return cmd
}

// The image runs without anything of this machine: its server, as the first process and as a
// user of its own, and an agent that it starts, to which a program in the image speaks.
func TestImageRuns(t *testing.T) {
	c := newContainer(t)
	version := c.command(t, "/usr/bin/nexus", "version", "--json")
	if said, err := version.CombinedOutput(); err != nil {
		if os.Geteuid() == 0 {
			t.Errorf("nexus version: %v\n%s", err, said)
		} else {
			t.Logf("not run, as there is no root of its own: %v\n%s", err, said)
		}
		return
	}
	server := c.command(t, append(c.config.Entrypoint, c.config.Cmd...)...)
	var log bytes.Buffer
	server.Stderr = &log
	server.Cancel = func() error { return server.Process.Signal(syscall.SIGTERM) }
	stdout, err := server.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	ended := false
	defer func() {
		if !ended {
			_ = server.Process.Kill() // and with it all that is in its namespace
		}
		if err := server.Wait(); err != nil {
			t.Errorf("the server: %v\n%s", err, &log)
		}
	}()
	port := ""
	for lines := bufio.NewScanner(stdout); port == "" && lines.Scan(); {
		if _, url, ok := strings.Cut(lines.Text(), "nexus listening on http://"); ok {
			port = url[strings.LastIndex(url, ":")+1:]
		}
	}
	ask := func(args ...string) string {
		t.Helper()
		return output(t, c.command(t, append([]string{"/usr/bin/nexus-rpc", "--port", port}, args...)...))
	}
	ask("create", "chat")
	ask("send", "chat", "My name is Alice")
	if said := ask("send", "chat", "What is my name?"); !strings.Contains(said, "Your name is Alice.") {
		t.Errorf("the agent said %s", said)
	}
	ask("shutdown")
	ended = true
}

// Models are reached by TLS, with the roots that are in the image.
func TestImageHasCertificates(t *testing.T) {
	c := newContainer(t)
	text, err := os.ReadFile(filepath.Join(c.root, "etc/ssl/certs/ca-certificates.crt"))
	if err != nil {
		t.Fatal(err)
	}
	if !x509.NewCertPool().AppendCertsFromPEM(text) || strings.Count(string(text), "BEGIN CERTIFICATE") < 80 {
		t.Errorf("%d roots are in it", strings.Count(string(text), "BEGIN CERTIFICATE"))
	}
}
