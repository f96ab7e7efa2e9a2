package main_test

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tidwall/gjson"
	"golang.org/x/sys/unix"
)

// hogs are prompts that take too much of something. All of them end by
// themselves, should nobody end them. The one of memory stays above its limit and below
// what the kernel refuses (256 MiB more), as it would end by itself between two looks at it.
var hogs = []struct {
	name, limits, prompt, want string
}{
	{
		"memory", `{"memory_bytes":157286400}`,
		`run (head -c 250000000 /dev/zero; sleep 20) | tail -n 1 | wc -c`,
		"memory limit 150 MiB",
	},
	{
		"processes", `{"processes":80}`,
		`run n=0; while [ $n -lt 120 ]; do sleep 20 & n=$((n+1)); done; wait`,
		"process limit 80",
	},
	{
		"CPU", `{"cpu_s":1}`,
		`run n=0; while [ $n -lt 30000000 ]; do n=$((n+1)); done`,
		"CPU limit 1 s",
	},
	{"output", `{"output_bytes_per_s":65536}`, `flood 1000000`, "output limit 64 KiB/s"},
}

// An agent that exceeds a limit is ended by its name, with all that its tools have
// started, and nobody else notices.
func TestLimitsOfAgents(t *testing.T) {
	t.Parallel() // most of it is waiting
	accounts := users()
	if testing.Short() {
		delete(accounts, "root") // make soak has both
	}
	for name, uid := range accounts {
		t.Run(name, func(t *testing.T) {
			s := newLive(t, func(cmd *exec.Cmd) {
				cmd.Args = append(cmd.Args, "--child", plainChild(t))
				runAs(t, cmd, uid)
			})
			for _, id := range []string{"quiet", "worker"} {
				s.create(id, "{}")
			}
			working := s.sendAsync("worker", "count to 100")
			pid := s.pid("quiet")
			for _, hog := range hogs {
				t.Run(hog.name, func(t *testing.T) {
					s.create(hog.name, hog.limits)
					answer := s.sendAsync(hog.name, hog.prompt)
					if other := s.send("quiet", "echo unharmed"); gjson.Get(other, "result.content").Str != "unharmed" {
						t.Errorf("the other agent: %s", other)
					}
					data := gjson.Get(<-answer, "error.data")
					if data.Get("type").Str != "CHILD_CRASHED" || data.Get("limit").Str != hog.want ||
						!strings.Contains(data.Get("details").Str, "killed: "+hog.want) {
						t.Errorf("got %s, want it killed for its %s", data, hog.want)
					}
					list := gjson.Get(s.call("/", "list_agents", `{}`), `result.agents.#(agent_id=="`+hog.name+`").last_error`).Str
					if !strings.Contains(list, hog.want) {
						t.Errorf("list_agents says %q", list)
					}
				})
			}
			if answer := <-working; !strings.HasSuffix(gjson.Get(answer, "result.content").Str, "100") {
				t.Errorf("what another agent did meanwhile: %s", answer)
			}
			if now := s.pid("quiet"); now != pid {
				t.Errorf("the other agent's process is %d, was %d", now, pid)
			}
			s.end()
		})
	}
}

// A limit of files makes calls fail, one of turns ends them, and both are the
// agent's own again when a later server restores it.
func TestLimitsAreKept(t *testing.T) {
	t.Parallel()
	s := newLive(t, nil)
	s.create("small", `{"open_files":100,"turn_s":1}`)
	if answer := s.send("small", "run ulimit -n"); !strings.Contains(gjson.Get(answer, "result.content").Str, "100") {
		t.Errorf("a tool may open another number of files: %s", answer)
	}
	check := func(when string) {
		t.Helper()
		if answer := s.send("small", "count to 1000"); gjson.Get(answer, "error.data.type").Str != "TIMEOUT" {
			t.Errorf("%s: %s", when, answer)
		}
		var files unix.Rlimit
		if err := unix.Prlimit(s.pid("small"), unix.RLIMIT_NOFILE, nil, &files); err != nil || files.Max != 100 {
			t.Errorf("%s: %d files, %v", when, files.Max, err)
		}
	}
	check("made")
	s.end()
	s.again()
	check("restored")
	s.end()
}

// Limits that are too low for any agent are an error with their name.
func TestLimitsTooLow(t *testing.T) {
	t.Parallel()
	s := newLive(t, func(cmd *exec.Cmd) { cmd.Args = append(cmd.Args, "--child", plainChild(t)) })
	for _, id := range []string{"a", ".a"} { // nothing of one that failed holds for the next
		for _, row := range [][2]string{
			{`{"processes":2}`, "process limit 2"},
			{`{"processes":1}`, "process limit 1"},
			{`{"processes":2}`, "process limit 2"},
		} {
			answer := s.call("/", "create_agent", fmt.Sprintf(`{"agent_id":%q,"limits":%s}`, id, row[0]))
			data := gjson.Get(answer, "error.data")
			if data.Get("type").Str != "START_FAILED" || data.Get("limit").Str != row[1] {
				t.Errorf("%s: %s", row[0], answer)
			}
		}
		s.create(id, `{}`)
	}
	// An agent and those created for it have its limits together, once.
	s.create("boss", `{"processes":40}`)
	var refused string
	for i := 0; refused == "" && i < 8; i++ {
		answer := s.call("/", "create_agent", fmt.Sprintf(`{"agent_id":"below-%d","parent_agent_id":"boss"}`, i))
		refused = gjson.Get(answer, "error.data.limit").Str
	}
	if refused != "process limit 40 of boss and the agents that it created" {
		t.Errorf("of eight agents below, one was refused for the limit %q", refused)
	}
	s.end()
}

// plainChild is nexus-child without the race detector, which takes more memory than
// any limit here.
func plainChild(t *testing.T) string {
	if !raceEnabled {
		return filepath.Join(programs, "nexus-child")
	}
	path := filepath.Join(programs, "plain", "nexus-child")
	if _, err := os.Stat(path); err == nil {
		return path
	}
	if out, err := exec.Command("go", "build", "-buildvcs=false", "-o", path, "../nexus-child").CombinedOutput(); err != nil {
		t.Fatalf("build nexus-child: %v\n%s", err, out)
	}
	return path
}

// create makes an agent that may run what it likes.
func (s *live) create(id, limits string) {
	s.Helper()
	made := s.call("/", "create_agent", fmt.Sprintf(`{"agent_id":%q,"cwd":%q,"preset":"trusted","approvals":"ask","limits":%s}`, id, s.cwd, limits))
	if !gjson.Get(made, "result").Exists() {
		s.Fatalf("create_agent %s: %s", id, made)
	}
	s.follow(id)
}

// sendAsync is send, with the answer to come; "" if the server is gone.
func (s *live) sendAsync(agent, content string) <-chan string {
	answer := make(chan string, 1)
	go func() {
		_, text, _ := request(http.MethodPost, s.url+"/agent/"+agent, http.Header{"Authorization": {"Bearer " + s.key}}, // it may be killed
			fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"send","params":{"content":%q}}`, content))
		answer <- text
	}()
	return answer
}
