package main_test

import (
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// What a send costs the server, by counts that no other load changes: what it allocates, and
// how often it reads and writes (its log, the agent's log before and after the turn, the pipe,
// the answer), and how often its heap is collected. Before a bound is raised, look for what is decoded, encoded or written twice.
func TestCostOfASend(t *testing.T) {
	s := newLive(t, nil)
	s.call("/", "create_agent", `{"agent_id":"a"}`)
	// Half more than what was measured: a slow machine reads and writes more often, as less
	// is there each time.
	most := map[string]float64{"allocations": 200, "bytes": 22_000, "reads": 10, "writes": 8, "collections": 0.005}
	if raceEnabled { // what is shared is allocated
		for _, name := range []string{"allocations", "bytes", "collections"} {
			most[name] *= 2
		}
	}
	count := func() map[string]float64 {
		_, text, err := request(http.MethodGet, s.url+"/metrics", http.Header{"Authorization": {"Bearer " + s.key}}, "")
		if err != nil {
			t.Fatal(err)
		}
		io, _ := os.ReadFile(fmt.Sprintf("/proc/%d/io", s.cmd.Process.Pid)) // for root alone
		counts := map[string]float64{}
		for name, member := range map[string]string{
			"allocations": "go_memstats_mallocs_total", "bytes": "go_memstats_alloc_bytes_total", "reads": "syscr:", "writes": "syscw:",
			"collections": "go_gc_duration_seconds_count",
		} {
			found := regexp.MustCompile(`(?m)^` + member + ` (\S+)$`).FindStringSubmatch(text + string(io))
			if found == nil {
				if strings.HasSuffix(member, ":") && os.Getuid() != 0 {
					continue
				}
				t.Fatalf("no %s", member)
			}
			n, err := strconv.ParseFloat(found[1], 64)
			if err != nil {
				t.Fatal(err)
			}
			counts[name] = n
		}
		return counts
	}
	const sends = 200
	for range 10 {
		s.send("a", "echo pong")
	}
	before, again := count(), count() // what counting costs
	for range sends {
		s.send("a", "echo pong")
	}
	for name, n := range count() {
		each := (n - again[name] - (again[name] - before[name])) / sends
		t.Logf("%.3g %s", each, name)
		if each > most[name] {
			t.Errorf("a send: %.3g %s, want at most %v", each, name, most[name])
		}
	}
	s.end()
}

// What an idle agent costs the server: bytes of its heap, goroutines, which have stacks of 4
// to 8 KiB, and what may be allocated until the next collection, of which each has its part. Before a bound is raised, look for buffers that wait for something to be put in.
func TestCostOfAnIdleAgent(t *testing.T) {
	t.Parallel()
	s := profiled(t)
	made := 0
	create := func(n int) {
		for range n {
			made++
			s.call("/", "create_agent", fmt.Sprintf(`{"agent_id":"a%d"}`, made))
		}
	}
	number := func(profile, pattern string) float64 {
		_, text := s.profile(profile)
		found := regexp.MustCompile(pattern).FindStringSubmatch(text)
		if found == nil {
			t.Fatalf("%s: no %s in %.200q", profile, pattern, text)
		}
		n, err := strconv.ParseFloat(found[1], 64)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	look := func() (bytes, goroutines float64) {
		number("heap?gc=1&debug=1", `(?m)^# HeapAlloc = (\d+)$`) // what pools keep is let go by the second collection
		return number("heap?gc=1&debug=1", `(?m)^# HeapAlloc = (\d+)$`), number("goroutine?debug=1", `^goroutine profile: total (\d+)`)
	}
	create(5)
	bytes, goroutines := look()
	const agents = 25
	create(agents)
	nowBytes, nowGoroutines := look()
	perAgent := (nowBytes - bytes) / agents
	most := 20.0 * (1 << 10)
	if raceEnabled {
		most *= 2
	}
	t.Logf("%.0f bytes, %.1f goroutines", perAgent, (nowGoroutines-goroutines)/agents)
	if perAgent > most {
		t.Errorf("an idle agent: %.0f bytes of heap, want at most %.0f", perAgent, most)
	}
	if each := (nowGoroutines - goroutines) / agents; each > 3.5 { // a spare may have been started between
		t.Errorf("an idle agent: %.1f goroutines, want 3", each)
	}
	if next := number("heap?gc=1&debug=1", `(?m)^# NextGC = (\d+)$`); next > 1.75*nowBytes {
		t.Errorf("%.0f bytes are in use, and the next collection is at %.0f", nowBytes, next)
	}
	s.end()
}
