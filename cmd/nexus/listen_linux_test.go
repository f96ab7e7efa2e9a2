package main_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/tidwall/gjson"

	"nexus.internal/bridge/certtest"
)

// Without TLS nothing is listened to but loopback.
func TestListenTakesTLS(t *testing.T) {
	t.Parallel()
	authority := certtest.New(t)
	cert, key := authority.Files(t, nil, "127.0.0.1")
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for _, tc := range []struct {
		flags  []string
		status int
		want   string
	}{
		{[]string{"--listen", "127.0.0.1:0"}, 2, "say --tls-cert FILE"},
		{[]string{"--listen", "127.0.0.1:0", "--tls-cert", cert}, 2, "say --tls-key FILE"},
		{[]string{"--tls-cert", cert, "--tls-key", key}, 2, "say --listen HOST:PORT"},
		{[]string{"--listen", ":8765", "--tls-cert", cert, "--tls-key", key}, 2, "--listen is HOST:PORT"},
		{[]string{"--listen", taken.Addr().String(), "--tls-cert", cert, "--tls-key", key}, 1, "address already in use"},
		{[]string{"--listen", "127.0.0.1:0", "--tls-cert", key, "--tls-key", cert}, 1, "--listen: the certificate"},
		{[]string{"--listen", "127.0.0.1:0", "--tls-cert", cert, "--tls-key", key + "x"}, 1, "no such file"},
		{[]string{"--host", "0.0.0.0"}, 2, "--host: refusing to listen"},
	} {
		cmd := exec.Command(filepath.Join(programs, "nexus"), append([]string{"serve", "0", "--home", filepath.Join(t.TempDir(), "home")}, tc.flags...)...)
		var said bytes.Buffer
		cmd.Stdout, cmd.Stderr = &said, &said
		err := cmd.Run()
		exit, ok := errors.AsType[*exec.ExitError](err)
		if !ok || exit.ExitCode() != tc.status || !strings.Contains(said.String(), tc.want) {
			t.Errorf("%q: %v, %s, want %d, %q", tc.flags, err, said.String(), tc.status, tc.want)
		}
	}
}

// listening is a server that clients on other machines reach, too.
type listening struct {
	*live
	at        string // HOST:PORT
	cert, key string // files of its certificate
}

// newListening starts one by a certificate for this address, and on a free port of it.
func newListening(t *testing.T, authority *certtest.Authority, host string, prepare func(*exec.Cmd)) *listening {
	t.Helper()
	l := &listening{at: net.JoinHostPort(host, freePortOf(t, host))}
	l.cert, l.key = authority.Files(t, nil, host)
	l.live = newLive(t, func(cmd *exec.Cmd) {
		cmd.Args = append(cmd.Args, "--listen", l.at, "--tls-cert", l.cert, "--tls-key", l.key)
		if prepare != nil {
			prepare(cmd)
		}
	})
	return l
}

func freePortOf(t *testing.T, host string) string {
	t.Helper()
	port, err := freePort(host)
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// remote asks the server as a client on another machine does, and says which certificate it has.
func (l *listening) remote(path, body string, authority *certtest.Authority) (answer string, leaf *x509.Certificate, err error) {
	text, err := os.ReadFile(authority.File)
	if err != nil {
		return "", nil, err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(text)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, DisableKeepAlives: true}
	method := http.MethodPost
	if body == "" {
		method = http.MethodGet
	}
	r, err := http.NewRequest(method, "https://"+l.at+path, strings.NewReader(body))
	if err != nil {
		return "", nil, err
	}
	r.Header.Set("Authorization", "Bearer "+l.live.key)
	response, err := transport.RoundTrip(r)
	if err != nil {
		return "", nil, err
	}
	defer response.Body.Close()
	all, err := io.ReadAll(response.Body)
	return string(all), response.TLS.PeerCertificates[0], err
}

// SIGHUP has the server prove itself by what is in the files then, whole or not at all.
func TestListenReloads(t *testing.T) {
	t.Parallel()
	authority := certtest.New(t)
	l := newListening(t, authority, "127.0.0.1", nil)
	const list = `{"jsonrpc":"2.0","method":"list_agents","id":1}`
	answer, first, err := l.remote("/rpc", list, authority)
	if err != nil || !strings.Contains(answer, `"agents":[]`) {
		t.Fatalf("%v, %s", err, answer)
	}
	// A certificate without its key holds for nobody.
	cert, key := authority.Files(t, nil, "127.0.0.1", "one.example")
	rename := func(from, to string) {
		t.Helper()
		if err := os.Rename(from, to); err != nil {
			t.Fatal(err)
		}
	}
	hup := func() {
		t.Helper()
		if err := l.cmd.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
	}
	rename(cert, l.cert)
	hup()
	eventually(t, "the server says what is wrong", func() (none struct{}, err error) {
		answer, leaf, err := l.remote("/readyz", "", authority)
		if err == nil && !leaf.Equal(first) {
			t.Error("the certificate was replaced without its key")
		}
		if warning := gjson.Get(answer, "warnings").Raw; err == nil && !strings.Contains(warning, "private key does not match") {
			err = errors.New(answer)
		}
		return none, err
	})
	rename(key, l.key)
	hup()
	eventually(t, "the server has the other certificate", func() (none struct{}, err error) {
		answer, leaf, err := l.remote("/readyz", "", authority)
		switch {
		case err != nil:
		case leaf.Equal(first):
			err = errors.New("it has the first one")
		case strings.Contains(answer, "not reloaded"):
			err = fmt.Errorf("it is not content: %s", answer)
		}
		return none, err
	})
	if _, _, err := l.remote("/readyz", "", certtest.New(t)); err == nil || !strings.Contains(err.Error(), "unknown authority") {
		t.Errorf("a client that knows another authority: %v", err)
	}
	l.end()
	if log := l.log.String(); !strings.Contains(log, "tls handshake") || !strings.Contains(log, `"remote":"127.0.0.1:`) {
		t.Errorf("the log says neither who failed nor who asked:\n%s", log)
	}
}

// The files of the server's certificate are out of bounds for agents, as the home is, also in an agent's own directory: whoever has the key is the server for its clients.
func TestFilesOfCertificateAreNoAgents(t *testing.T) {
	t.Parallel()
	l := newListening(t, certtest.New(t), "127.0.0.1", nil)
	dir := filepath.Dir(l.key)
	cert, err := os.ReadFile(l.cert)
	if err != nil {
		t.Fatal(err)
	}
	for _, preset := range []string{"sandboxed", "trusted"} {
		if answer := l.call("/", "create_agent", fmt.Sprintf(`{"agent_id":%q,"preset":%[1]q,"cwd":%q}`, preset, dir)); gjson.Get(answer, "error").Exists() {
			t.Fatal(answer)
		}
		for _, prompt := range []string{"read " + filepath.Base(l.key), "run cat " + l.key, "run echo > " + l.cert} {
			if answer := l.send(preset, prompt); !gjson.Get(answer, "result.content").Exists() || strings.Contains(answer, "PRIVATE KEY") {
				t.Errorf("%s, %s: %s", preset, prompt, answer)
			}
		}
	}
	if now, err := os.ReadFile(l.cert); err != nil || !bytes.Equal(now, cert) {
		t.Errorf("the certificate was changed: %s, %v", now, err)
	}
	l.end()
}
