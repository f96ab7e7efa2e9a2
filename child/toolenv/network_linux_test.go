package toolenv_test

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"nexus.internal/child/parent"
	"nexus.internal/child/sandbox"
	"nexus.internal/child/toolenv"
	"nexus.internal/protocol"
)

// loopback resolves the names of the tests, which end in .test, to this machine.
type loopback struct{}

func (loopback) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	if !strings.HasSuffix(host, ".test") {
		return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
}

// network is a site whose programs reach these hosts alone. HOST is the port of the server.
func network(t *testing.T, preset string, hosts ...string) *site {
	t.Helper()
	s, _ := homeSite(t, preset, 0)
	s.o.Resolver, s.o.Permissions.Network = loopback{}, hosts
	s.Env = s.open(s.o)
	return s
}

// get has a program ask its gate for a page.
func get(address string) string {
	host := strings.TrimPrefix(address, "http://")
	return `exec 3<>/dev/tcp/127.0.0.1/${HTTP_PROXY##*:}; printf 'GET ` + address + ` HTTP/1.1\r\nHost: ` + host + `\r\n\r\n' >&3; cat <&3`
}

// Programs reach the hosts that the permissions name, by the gate, and nothing else. What the
// gate has refused is told, and the model is told of the hosts.
func TestProgramsReachNamedHostsAlone(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "the page of "+r.Host) }))
	defer server.Close()
	_, port, _ := net.SplitHostPort(server.Listener.Addr().String())
	for _, preset := range []string{"sandboxed", "trusted", "yolo"} {
		t.Run(preset, func(t *testing.T) {
			s := network(t, preset, "web.test:"+port, "127.0.0.1:1")
			if got := s.shell(get("http://web.test:" + port)); !strings.Contains(got, "403 Forbidden") || !strings.Contains(got, "127.0.0.1 is a loopback address") {
				t.Errorf("an address that is not named: %q", got)
			}
			s = network(t, preset, "web.test:"+port, "127.0.0.1:"+port)
			if got := s.shell(get("http://web.test:" + port)); !strings.Contains(got, "the page of web.test:"+port+"[exit") && !strings.Contains(got, "the page of web.test:"+port+"\n[exit status 0]") {
				t.Errorf("a named host: %q", got)
			}
			if got := s.shell(get("http://other.test:" + port)); !strings.Contains(got, "\n[the walls of this agent: other.test:"+port+" was not reached; programs reach only these hosts, by the proxy in HTTP_PROXY and HTTPS_PROXY: 127.0.0.1:"+port+", web.test:"+port) {
				t.Errorf("another host: %q", got)
			}
			if got := s.shell("exec 3<>/dev/tcp/127.0.0.1/" + port); !strings.Contains(got, "onnection refused") {
				t.Errorf("around the gate: %q", got)
			}
			if got := s.Walls(); !strings.Contains(got, "programs reach only these hosts, by the proxy in HTTP_PROXY and HTTPS_PROXY: 127.0.0.1:"+port+", web.test:"+port) {
				t.Errorf("the model is told %q", got)
			}
			if r := s.Rules("mcp_x"); r.Gate == nil || r.Network || r.Confinement != sandbox.Always {
				t.Errorf("programs of servers: %+v", r)
			}
		})
	}
	none := network(t, "trusted", []string{}...)
	none.o.Permissions.Network = []string{}
	none.Env = none.open(none.o)
	if got := none.shell(get("http://web.test:" + port)); !strings.Contains(got, "403") || !strings.Contains(got, "programs share a loopback and reach no host") {
		t.Errorf("an empty list: %q", got)
	}
}

// The programs of an agent reach a server that a job of theirs runs, those of another agent do
// not; nor do those that start after other hosts were allowed.
func TestProgramsReachJobs(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	site := func() *site {
		return newSite(t, protocol.Permissions{Preset: "sandboxed", AllowedPaths: []string{filepath.Dir(self)}})
	}
	s, other := site(), site()
	s.want("[job web is running: job_output shows its output, job_stop ends it]", call("job_start", "command", self+" serve 127.0.0.1:8080", "name", "web"))
	if got := run(t.Context(), s.Env, call("job_output", "job", "web", "wait_s", 60, "until", "output")); !strings.Contains(got, "listening") {
		t.Fatal(got)
	}
	const ask = "cat < /dev/tcp/127.0.0.1/8080"
	if got := s.shell(ask); got != "the job\n[exit status 0]" {
		t.Errorf("a command: %q", got)
	}
	if got := other.shell(ask); !strings.Contains(got, "refused") {
		t.Errorf("another agent: %q", got)
	}
	held := s.o.Permissions
	held.Network = []string{"a.test"}
	if err := s.SetPermissions(held, protocol.WithinCeiling); err != nil {
		t.Fatal(err)
	}
	if got := s.shell(ask); !strings.Contains(got, "refused") {
		t.Errorf("after other hosts were allowed: %q", got)
	}
}

// What runs unasked because it only reads has no network, whatever hosts are named.
func TestReadOnlyProgramsReachNoHost(t *testing.T) {
	s := newSite(t, protocol.Permissions{Preset: "trusted", Network: []string{"a.test"}}, func(o *toolenv.Options) {
		o.Parent, o.Resolver = parent.New(parent.Options{Approvals: parent.Deny}), loopback{}
	})
	if got := s.shell("cat < /dev/tcp/127.0.0.1/1"); !strings.Contains(got, "ermission denied") && !strings.Contains(got, "needs an approval") {
		t.Errorf("got %q", got)
	}
}

// registry is a server with files by path, which counts what it was asked for archives. PORT in
// a file is its port.
func registry(t *testing.T, files map[string]string) (port string, archives *atomic.Int64) {
	t.Helper()
	archives = &atomic.Int64{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, ok := files[strings.TrimSuffix(r.URL.Path, "/")]
		if !ok {
			http.NotFound(w, r)
			return
		}
		switch path.Ext(r.URL.Path) {
		case ".zip", ".tgz", ".whl":
			archives.Add(1)
			w.Header().Set("Cache-Control", "max-age=3600")
		case "":
			w.Header().Set("Content-Type", map[bool]string{true: "application/json", false: "text/html"}[strings.HasPrefix(text, "{")])
		}
		fmt.Fprint(w, strings.ReplaceAll(text, "PORT", port))
	}))
	t.Cleanup(server.Close)
	_, port, _ = net.SplitHostPort(server.Listener.Addr().String())
	return port, archives
}

// dirOf is the first directory on PATH that has a program and that everybody's programs may
// read; "" if there is none.
func dirOf(program string) string {
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		info, err := os.Stat(filepath.Join(dir, program))
		if err == nil && info.Mode().IsRegular() && (strings.HasPrefix(dir, "/usr/") || strings.HasPrefix(dir, "/opt/") || dir == "/bin") {
			return dir
		}
	}
	return ""
}

func zipped(t *testing.T, files ...string) string {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for i := 0; i < len(files); i += 2 {
		f, err := w.Create(files[i])
		if err == nil {
			_, err = f.Write([]byte(files[i+1]))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func tarred(t *testing.T, files ...string) string {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for i := 0; i < len(files); i += 2 {
		err := w.WriteHeader(&tar.Header{Name: files[i], Mode: 0o644, Size: int64(len(files[i+1]))})
		if err == nil {
			_, err = w.Write([]byte(files[i+1]))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// The recipes of child/AGENT.md §4.5: go, npm and pip fetch a dependency through the gate from a
// registry that the permissions name, under sandboxed and trusted, and do not fetch it again in
// the next call. From one that they do not name they fetch nothing.
func TestRecipes(t *testing.T) {
	tarball := tarred(t, "package/package.json", `{"name":"hello","version":"1.0.0","main":"index.js"}`, "package/index.js", `module.exports = "hello"`)
	integrity := sha512.Sum512([]byte(tarball))
	wheel := zipped(t, "hello.py", "text = 'hello'\n", "hello-1.0.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: hello\nVersion: 1.0.0\n",
		"hello-1.0.0.dist-info/WHEEL", "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
		"hello-1.0.0.dist-info/RECORD", "hello.py,,\nhello-1.0.0.dist-info/METADATA,,\nhello-1.0.0.dist-info/WHEEL,,\nhello-1.0.0.dist-info/RECORD,,\n")
	digest := sha256.Sum256([]byte(wheel))
	const module = "example.test/hello"
	files := map[string]string{
		"/" + module + "/@v/list":        "v1.0.0\n",
		"/" + module + "/@v/v1.0.0.info": `{"Version":"v1.0.0","Time":"2026-01-02T03:04:05Z"}`,
		"/" + module + "/@v/v1.0.0.mod":  "module " + module + "\n",
		"/" + module + "/@v/v1.0.0.zip": zipped(t, module+"@v1.0.0/go.mod", "module "+module+"\n",
			module+"@v1.0.0/hello.go", "package hello\n\nconst Text = \"hello\"\n"),
		"/hello": `{"name":"hello","dist-tags":{"latest":"1.0.0"},"versions":{"1.0.0":{"name":"hello","version":"1.0.0","dist":{"tarball":"http://registry.test:PORT/hello-1.0.0.tgz","integrity":"sha512-` +
			base64.StdEncoding.EncodeToString(integrity[:]) + `"}}}}`,
		"/hello-1.0.0.tgz":                   tarball,
		"/simple/hello":                      `<a href="/hello-1.0.0-py3-none-any.whl#sha256=` + hex.EncodeToString(digest[:]) + `">hello-1.0.0-py3-none-any.whl</a>`,
		"/hello-1.0.0-py3-none-any.whl":      wheel,
		"/hello-1.0.0-py3-none-any.whl.none": "",
	}
	for _, tt := range []struct{ program, fetch, again string }{
		{
			"go", "cd go && GOTOOLCHAIN=local GOFLAGS=-mod=mod GOSUMDB=off GOPROXY=http://registry.test:PORT go list -f '{{.Dir}}' " + module + " && GOTOOLCHAIN=local go vet .",
			"rm -f go/go.sum",
		},
		{"npm", "cd npm && npm install --no-audit --no-fund --registry http://registry.test:PORT hello && node -p 'require(\"hello\")'", "rm -rf npm/node_modules npm/package-lock.json"},
		{
			"python3", "cd pip && python3 -m pip install --quiet --disable-pip-version-check --index-url http://registry.test:PORT/simple --trusted-host registry.test --target lib hello && PYTHONPATH=lib python3 -c 'import hello; print(hello.text)'",
			"rm -rf pip/lib",
		},
	} {
		dir := dirOf(tt.program)
		if dir == "" || tt.program == "python3" && exec.Command(dir+"/python3", "-m", "pip", "--version").Run() != nil {
			t.Logf("%s is not here, so its recipe is not tried", tt.program)
			continue
		}
		for _, preset := range []string{"sandboxed", "trusted"} {
			t.Run(tt.program+" "+preset, func(t *testing.T) {
				t.Setenv("PATH", dir+":/usr/local/bin:/usr/bin:/bin")
				port, archives := registry(t, files)
				fetch := strings.ReplaceAll(tt.fetch, "PORT", port)
				prepare := func(s *site) {
					if got := s.shell("mkdir go npm pip && echo {} > npm/package.json && printf 'module a.test/a\\n\\ngo 1.24\\n\\nrequire " + module + " v1.0.0\\n' > go/go.mod && printf 'package a\\n\\nimport _ \"" + module + "\"\\n' > go/a.go"); got != "[exit status 0]" {
						t.Fatal(got)
					}
				}
				closed := network(t, preset, "other.test:"+port, "127.0.0.1:"+port)
				prepare(closed)
				if got := closed.shell(fetch); strings.Contains(got, "[exit status 0") || !strings.Contains(got, "registry.test:"+port+" was not reached") || archives.Load() != 0 {
					t.Errorf("from a registry that is not named: %s", got)
				}
				s := network(t, preset, "registry.test:"+port, "127.0.0.1:"+port)
				prepare(s)
				if got := s.shell(fetch); !strings.Contains(got, "hello") || !strings.Contains(got, "[exit status 0") || archives.Load() != 1 {
					t.Fatalf("%d archives were fetched: %s", archives.Load(), got)
				}
				if got := s.shell(tt.again + "; " + fetch); !strings.Contains(got, "hello") || !strings.Contains(got, "[exit status 0") || archives.Load() != 1 {
					t.Errorf("again: %d archives were fetched: %s", archives.Load(), got)
				}
			})
		}
	}
}
