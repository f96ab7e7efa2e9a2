package main_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/auth"
	"nexus.internal/bridge/client"
)

// openFarm are the servers of three machines that share a directory, each with a listener for other machines by the certificate that
// nexus cluster init made. A key that a server has made for an agent is good at all of them.
func openFarm(t *testing.T, agent string) (ca, keyFile, shared string, urls []string, all []*live) {
	t.Helper()
	shared = t.TempDir()
	maker := newLive(t, nil)
	text := gjson.Get(maker.call("/", "create_key", fmt.Sprintf(`{"scope":"agent","agent_id":%q}`, agent)), "result.key").Str
	maker.end()
	known, err := os.ReadFile(filepath.Join(maker.home, "keys.json"))
	if err != nil {
		t.Fatal(err)
	}
	keyFile = filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(keyFile, []byte(text+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	addresses := clusterAddresses(t, "a", "b", "c")
	dir := initCluster(t, addresses...)
	for _, address := range addresses {
		name, at, _ := strings.Cut(address, "=")
		host, _, _ := strings.Cut(at, ":")
		listen := host + ":" + freePortOf(t, host)
		files := filepath.Join(dir, name)
		all = append(all, newLive(t, func(cmd *exec.Cmd) {
			for _, v := range cmd.Env {
				if home, ok := strings.CutPrefix(v, "NEXUS_HOME="); ok {
					if err := os.WriteFile(filepath.Join(home, "keys.json"), known, 0o600); err != nil {
						t.Fatal(err)
					}
				}
			}
			cmd.Args = append(cmd.Args, "--cluster-files", files, "--shared-path", shared,
				"--listen", listen, "--tls-cert", filepath.Join(files, "certificate.pem"), "--tls-key", filepath.Join(files, "key.pem"))
		}))
		urls = append(urls, "https://"+listen)
	}
	for _, s := range all {
		s.untilNodes("a up, b up, c up")
	}
	return filepath.Join(dir, "a", "ca.pem"), keyFile, shared, urls, all
}

// A client on another machine sees one server: the machine that it talks to, which has its agent, is killed in the middle of an answer, and
// the client goes on at the next one. What was sent is done once, and the events that it follows have no number twice and no hole that
// is not said to be one.
func TestClusterClientGoesOn(t *testing.T) {
	t.Parallel()
	ca, keyFile, shared, urls, all := openFarm(t, "worker")
	all[0].createIn("worker", shared)
	text, err := os.ReadFile(keyFile)
	if err != nil {
		t.Fatal(err)
	}
	key, err := auth.Parse(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(client.Options{URL: strings.Join(urls, ","), CA: ca, Key: key, Retries: 50}) // the machines are busy
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	first := api.SendParams{Content: "My name is Alice", RequestID: new("first")}
	if sent, err := client.Do(t.Context(), c, "worker", api.Send, first); err != nil || !strings.Contains(*sent.Content, "Alice") {
		t.Fatalf("%v, %+v", err, sent)
	}
	killed := false
	kill := func() {
		if !killed {
			killed = true
			if err := all[0].cmd.Process.Kill(); err != nil {
				t.Error(err)
			}
			_ = all[0].cmd.Wait() // that it was killed
		}
	}
	turn := make(chan error, 1)
	go func() {
		_, err := client.Do(t.Context(), c, "worker", api.Send, api.SendParams{Content: "count to 100000", RequestID: new("cut")})
		turn <- err
	}()
	after := make(chan string, 1)
	last, deltas, turns := uint64(0), 0, 0
	for event, err := range c.Follow(t.Context(), "worker", 0, client.Filter{}) {
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case event.Seq == 0:
			continue
		case event.Type == "gap":
			if from := gjson.GetBytes(event.Data, "from").Uint(); from > last+1 {
				t.Errorf("after event %d a gap begins at %d", last, from)
			}
		case event.Seq != last+1:
			t.Errorf("after event %d comes %d", last, event.Seq)
		}
		last = event.Seq
		switch event.Type {
		case "message_update":
			if turns == 1 {
				if deltas++; deltas > 20 {
					kill()
				}
			}
		case "turn_end":
			if turns++; turns == 2 { // the cut one, as the other machine tells it
				go func() {
					sent, err := client.Do(t.Context(), c, "worker", api.Send, api.SendParams{Content: "What is my name?"})
					if err != nil {
						after <- err.Error()
						return
					}
					after <- *sent.Content
				}()
			}
		}
		if turns == 3 {
			break
		}
	}
	if !killed {
		t.Error("the machine was not killed in the midst of the answer")
	}
	if answer := <-after; answer != "Your name is Alice." {
		t.Errorf("the other machine's agent says %s", answer)
	}
	if err := <-turn; client.KindOf(err) != api.KindChildCrashed {
		t.Errorf("the turn that was cut off: %v", err)
	}
	if again, err := client.Do(t.Context(), c, "worker", api.Send, first); err != nil || !again.Replayed {
		t.Errorf("what was done before is done again: %v, %+v", err, again)
	}
	if c.URL() == urls[0] {
		t.Error("the client still calls the machine that was killed")
	}

	// And so do the verbs, each of which begins at the first address.
	run := func(args []string, environ ...string) (string, error) {
		cmd := exec.Command(filepath.Join(programs, "nexus-rpc"), args...)
		cmd.Env = append([]string{"HOME=" + t.TempDir(), "PATH=" + os.Getenv("PATH")}, environ...)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	flags := []string{"--server", strings.Join(urls, ","), "--ca", ca, "--api-key", "@" + keyFile}
	if out, err := run(append(flags, "send", "worker", "What is my name?")); err != nil || !strings.Contains(out, "Your name is Alice.") {
		t.Errorf("send: %v, %s", err, out)
	}
	environ := []string{"NEXUS_SERVER=" + strings.Join(urls, ","), "NEXUS_CA=" + ca, "NEXUS3_API_KEY=" + key.Reveal()}
	if out, err := run([]string{"send", "worker", "What is my name?"}, environ...); err != nil || !strings.Contains(out, "Your name is Alice.") {
		t.Errorf("send, by the environment: %v, %s", err, out)
	}
	for _, tc := range []struct {
		args   []string
		status int
		want   string
	}{
		{[]string{"--server", urls[0], "--ca", ca, "--api-key", "@" + keyFile, "list"}, 3, "no server runs at " + urls[0]},
		{[]string{"--server", urls[1], "--api-key", "@" + keyFile, "list"}, 1, "name the file of the server's authority (--ca, NEXUS_CA)"},
		{[]string{"--server", urls[1], "--ca", ca, "list"}, 1, "no API key for " + urls[1]},
		{[]string{"--server", urls[1], "--port", "1", "--ca", ca, "--api-key", "@" + keyFile, "list"}, 2, "exclude each other"},
		{[]string{"--server", strings.Replace(urls[1], "https", "http", 1), "--api-key", "@" + keyFile, "list"}, 2, "or https://HOST:PORT"},
		{append(flags, "shutdown"), 2, "shutdown is of one server"},
		{[]string{"--server", urls[1], "detect"}, 2, "detect has no --server: it looks at a port of this machine"},
	} {
		out, err := run(tc.args)
		exit, _ := errors.AsType[*exec.ExitError](err)
		if exit == nil || exit.ExitCode() != tc.status || !strings.Contains(out, tc.want) {
			t.Errorf("%q: %v, %s, want %d, %q", tc.args, err, out, tc.status, tc.want)
		}
	}
	out, err := run([]string{"detect"}, environ...)
	if exit, _ := errors.AsType[*exec.ExitError](err); exit == nil || exit.ExitCode() != 2 || !strings.Contains(out, "leave out NEXUS_SERVER") {
		t.Errorf("detect, by the environment: %v, %s", err, out)
	}
}
