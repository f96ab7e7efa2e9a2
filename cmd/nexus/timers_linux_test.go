package main_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// All threads of a server and of its agents wait up to a millisecond longer than asked for,
// which saves a third of what a send costs.
func TestTimers(t *testing.T) {
	s := newLive(t, nil)
	s.call("/", "create_agent", `{"agent_id":"a"}`)
	looked := 0
	for _, pid := range []int{s.cmd.Process.Pid, s.pid("a")} {
		threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
		if err != nil {
			t.Fatal(err)
		}
		for _, thread := range threads {
			text, err := os.ReadFile("/proc/" + thread.Name() + "/timerslack_ns")
			if err != nil {
				continue // it has ended, or only root may look
			}
			looked++
			if got := strings.TrimSpace(string(text)); got != "1000000" {
				t.Errorf("thread %s of process %d has timers of %s ns", thread.Name(), pid, got)
			}
		}
	}
	if looked == 0 && os.Getuid() == 0 {
		t.Error("nothing was looked at")
	}
	s.end()
}
