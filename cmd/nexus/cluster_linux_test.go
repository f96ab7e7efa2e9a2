package main_test

import (
	"bufio"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/tidwall/gjson"
)

// clusterAddresses are of machines that are all here, each with an address of its own that nobody else takes by chance.
func clusterAddresses(t *testing.T, machines ...string) (args []string) {
	t.Helper()
	network := fmt.Sprintf("127.%d.%d.", 1+rand.IntN(250), rand.IntN(250))
	for i, machine := range machines {
		l, err := net.Listen("tcp", fmt.Sprintf("%s%d:0", network, i+1))
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		args = append(args, machine+"="+l.Addr().String())
	}
	return args
}

// initCluster makes the certificates of machines.
func initCluster(t *testing.T, args ...string) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "farm")
	out, err := exec.Command(filepath.Join(programs, "nexus"), append([]string{"cluster", "init", dir}, args...)...).CombinedOutput()
	if err != nil || strings.Count(string(out), "nexus serve --cluster-files "+dir) != len(args) {
		t.Fatalf("cluster init: %v\n%s", err, out)
	}
	return dir
}

// newMachine starts the server that is a machine of a cluster.
func newMachine(t *testing.T, files string, flags ...string) *live {
	t.Helper()
	return newLive(t, func(cmd *exec.Cmd) {
		cmd.Args = append(append(cmd.Args, "--cluster-files", files), flags...)
	})
}

// nodes are the machines that the server knows, with their states, as in "a up, b lost"; and whether they agree.
func (s *live) nodes() (states string, agrees bool) {
	result := gjson.Get(s.call("/", "list_nodes", `{}`), "result")
	var all []string
	for _, n := range result.Get("nodes").Array() {
		all = append(all, n.Get("node").Str+" "+n.Get("state").Str)
	}
	return strings.Join(all, ", "), result.Get("problem").Type == gjson.Null
}

// problem is why the machines do not agree, or what of theirs this one cannot read; "" if all is well.
func (s *live) problem() string {
	return gjson.Get(s.call("/", "list_nodes", `{}`), "result.problem").Str
}

// untilNodes waits until the server knows these machines, and agrees with them.
func (s *live) untilNodes(want string) {
	s.Helper()
	eventually(s.T, "the machines are "+want, func() (none struct{}, err error) {
		if states, agrees := s.nodes(); states != want || !agrees {
			err = fmt.Errorf("they are %s, agree: %t", states, agrees)
		}
		return none, err
	})
}

// engine is the process of the nexus-cluster that the server has started.
func (s *live) engine() (pid int, err error) {
	processes, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return 0, err
	}
	for _, stat := range processes {
		text, _ := os.ReadFile(stat) // it may have ended
		fields := strings.Fields(string(text))
		if len(fields) > 4 && fields[1] == "(nexus-cluster)" && fields[2] != "Z" && fields[3] == strconv.Itoa(s.cmd.Process.Pid) {
			return strconv.Atoi(fields[0])
		}
	}
	return 0, errors.New("the server has no nexus-cluster")
}

// Three servers are one cluster: each knows all, with what they are good for. An engine that is killed is started again; a server that is killed
// leaves none and is missed, and found again when it is back; one that ends says so.
func TestCluster(t *testing.T) {
	t.Parallel()
	addresses := clusterAddresses(t, "a", "b", "c")
	dir := initCluster(t, addresses...)
	a := newMachine(t, filepath.Join(dir, "a"), "--label", "gpu=none,zone=one", "--max-agents", "9")
	b, c := newMachine(t, filepath.Join(dir, "b")), newMachine(t, filepath.Join(dir, "c"))
	for _, s := range []*live{a, b, c} {
		s.untilNodes("a up, b up, c up")
	}
	first := gjson.Get(b.call("/", "list_nodes", `{}`), "result")
	if got := first.Get("nodes.0"); first.Get("cluster").Str != "nexus" || first.Get("node").Str != "b" || got.Get("labels.zone").Str != "one" ||
		got.Get("max_agents").Int() != 9 || got.Get("processors").Int() < 1 || got.Get("free_memory_bytes").Int() < 1 || first.Get("nodes.1.max_agents").Type != gjson.Null {
		t.Errorf("of a, b knows %s", first.Raw)
	}

	if got := doctored(t, a.home, nil)["cluster"]; len(got) != 1 || got[0] != "ok nexus: a (up), b (up), c (up), and this is a" {
		t.Errorf("of all machines, doctor says %q", got)
	}

	worksThrough(t, a, b)

	killed, err := a.engine()
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(killed, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "another engine runs", func() (pid int, err error) {
		if pid, err = a.engine(); err == nil && pid == killed {
			err = errors.New("it is the same one")
		}
		return pid, err
	})
	eventually(t, "a reaches b again", func() (none struct{}, err error) { // which it may have lost for so short a time that nobody says so
		if answer := a.call("/agent/worker", "get_model", `{}`); !gjson.Get(answer, "result").Exists() {
			err = errors.New(answer)
		}
		return none, err
	})
	for _, s := range []*live{a, b} {
		s.untilNodes("a up, b up, c up")
	}

	cut := began(t, a, b, "cut")
	if err := b.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if answer := <-cut; gjson.Get(answer, "error.data.type").Str != "NODE_UNREACHABLE" {
		t.Errorf("of a turn on a machine that was killed, the one that was asked says %s", answer)
	}
	_ = b.cmd.Wait() // that it was killed
	eventually(t, "the engine of the killed server is gone", func() (none struct{}, err error) {
		conn, err := net.Dial("tcp", strings.TrimPrefix(addresses[1], "b="))
		if err == nil {
			conn.Close()
			return none, errors.New("it listens")
		}
		return none, nil
	})
	a.untilNodes("a up, b lost, c up")
	if got := doctored(t, a.home, nil)["cluster"]; len(got) != 1 || !strings.HasPrefix(got[0], "warn nexus: the machine b is lost, and was heard of last at 2") {
		t.Errorf("of a machine that is lost, doctor says %q", got)
	}
	b.again()
	for _, s := range []*live{a, b, c} {
		s.untilNodes("a up, b up, c up")
	}
	answered(t, a, "What is my name?", "Your name is Alice.")
	c.end()
	a.untilNodes("a up, b up, c left")
	b.end()
	a.end()
}

// answered has a machine ask the agent worker until it is answered: whose the agent is may not be known there yet.
func answered(t *testing.T, s *live, content, want string) {
	t.Helper()
	eventually(t, content, func() (none struct{}, err error) {
		if answer := s.send("worker", content); !strings.Contains(answer, want) {
			err = errors.New(answer)
		}
		return none, err
	})
}

// began has a machine ask for a turn of worker, which owner has, that goes on until it is ended. It returns once that runs; its answer comes by the channel.
func began(t *testing.T, s, owner *live, request string) <-chan string {
	t.Helper()
	answer := make(chan string, 1)
	go func() { // which the caller waits for
		answer <- s.call("/agent/worker", "send", fmt.Sprintf(`{"content":"count to 100000","request_id":%q}`, request))
	}()
	eventually(t, "the turn runs", func() (none struct{}, err error) {
		select {
		case early := <-answer:
			t.Fatalf("instead of running, it was answered: %s", early)
		default:
		}
		return none, owner.busy("worker")
	})
	return answer
}

// worksThrough has owner make the agent worker, and asks s for all that a client does with an agent.
func worksThrough(t *testing.T, s, owner *live) {
	t.Helper()
	if answer := owner.call("/", "create_agent", `{"agent_id":"worker"}`); gjson.Get(answer, "result.agent_id").Str != "worker" {
		t.Fatal(answer)
	}
	answered(t, s, "My name is Alice", "Alice")
	if got := gjson.Get(s.call("/", "list_agents", `{}`), "result.agents.#(agent_id==worker).node").Str; got != "b" {
		t.Errorf("worker is on %q, as list_agents of another machine says", got)
	}
	for _, args := range [][]string{{"list"}, {"top", "--once"}} {
		if out, err := s.nexus(args...); err != nil || !regexp.MustCompile(`(?m)^AGENT +NODE +STATE .*\nworker +b +ready `).MatchString(out) {
			t.Errorf("%s: %v\n%s", args, err, out)
		}
	}
	key := http.Header{"Authorization": {"Bearer " + s.key}}
	streaming := key.Clone()
	streaming.Set("Accept", "text/event-stream")
	_, stream, err := request(http.MethodPost, s.url+"/agent/worker", streaming, `{"jsonrpc":"2.0","id":1,"method":"send","params":{"content":"count to 3"}}`)
	if err != nil || !strings.Contains(stream, `"method":"stream_start"`) || !strings.Contains(stream, `"method":"stream_end"`) || !strings.Contains(stream, `"stop_reason":"completed"`) {
		t.Errorf("a stream of another machine's agent: %v\n%s", err, stream)
	}
	const plan = `{"request_id":"health","pool":{"size":1},"plan":{"tasks":[{"id":"a","type":"testing","description":"a"}]}}`
	run := owner.call("/", "run_plan", plan)
	if again := s.call("/", "run_plan", plan); gjson.Get(run, "result.status").Str != "completed" || !gjson.Get(again, "result.replayed").Bool() {
		t.Errorf("a run of a plan, and what another machine says of it: %s\n%s", run, again)
	}
	cancelled := began(t, s, owner, "long")
	ask, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+"/agent/worker/events?after=0", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	ask.Header = key
	events, err := http.DefaultClient.Do(ask)
	if err != nil {
		t.Fatal(err)
	}
	defer events.Body.Close()
	turns := 0
	for lines := bufio.NewScanner(events.Body); turns < 3 && lines.Scan(); {
		if lines.Text() == "event: turn_start" {
			turns++
		}
	}
	if turns < 3 {
		t.Errorf("of three turns the events of another machine's agent tell %d", turns)
	}
	if answer := s.call("/agent/worker", "cancel", `{"request_id":"long"}`); !gjson.Get(answer, "result.cancelled").Bool() {
		t.Errorf("a turn elsewhere is not cancelled: %s", answer)
	}
	if answer := <-cancelled; !gjson.Get(answer, "result.cancelled").Bool() {
		t.Errorf("a cancelled turn elsewhere: %s", answer)
	}
}

// A machine with certificates of another authority is not let in.
func TestClusterStranger(t *testing.T) {
	t.Parallel()
	addresses := clusterAddresses(t, "a", "b", "c")
	ours, theirs := initCluster(t, addresses...), initCluster(t, addresses...)
	log := filepath.Join(t.TempDir(), "log")
	stranger := newMachine(t, filepath.Join(theirs, "c"), "--log-file", log)
	knows := func(s *live) { // all three were never there, so that they agree on nothing
		eventually(t, "two machines know each other alone", func() (none struct{}, err error) {
			if states, _ := s.nodes(); states != "a up, b up" {
				err = fmt.Errorf("they know %s", states)
			}
			return none, err
		})
	}
	seen := filepath.Join(t.TempDir(), "log")
	a, b := newMachine(t, filepath.Join(ours, "a"), "--log-file", seen), newMachine(t, filepath.Join(ours, "b"))
	for _, s := range []*live{a, b} {
		knows(s)
	}
	untilLogged(t, log, "unknown authority")
	if states, agrees := stranger.nodes(); states != "c up" || agrees {
		t.Errorf("the stranger knows %s, agrees: %t", states, agrees)
	}
	stranger.end()
	for _, s := range []*live{a, b} {
		knows(s)
	}
	b.end()
	a.end()
}

// untilLogged waits until the file with a server's log has a word.
func untilLogged(t *testing.T, path, word string) {
	t.Helper()
	eventually(t, "the log says "+word, func() (none struct{}, err error) {
		text, err := os.ReadFile(path)
		if err == nil && !strings.Contains(string(text), word) {
			err = fmt.Errorf("it says %s", text)
		}
		return none, err
	})
}
