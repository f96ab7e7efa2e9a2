package chaos

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	configuration "nexus.internal/cmd/internal/config"
	"nexus.internal/protocol"
	"nexus.internal/protocol/proctree"
)

// waitNoneLeft waits until find finds nothing, and notes what it still finds when its
// stepTimeout is over.
func (s *server) waitNoneLeft(ctx context.Context, history *History, what string, find func() []string) {
	history.Add(Record{Kind: Looked, Text: what})
	limited, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	for {
		found := find()
		if len(found) == 0 {
			return
		}
		if !pause(limited, 20*time.Millisecond) {
			for _, one := range found {
				history.Add(Record{Kind: Left, Text: what + ": " + one})
			}
			return
		}
	}
}

// processes are those of the server, its agents and their tools: everything on
// the machine but ourselves that has the home or the mark of a tool in its
// arguments or its environment, or bears a tag of the server.
func (s *server) processes() []string {
	return processesWith(func(pid int) bool { return s.isLineageTag(proctree.LineageOf(pid)) }, s.mark, s.home)
}

// strays are the processes that tools have started, and all that come of the
// server but it, its watchdog, what comes of the agents that live, and one process that
// waits to become one.
func (s *server) strays(ctx context.Context) []string {
	pids, err := s.pids(ctx)
	if err != nil {
		return []string{err.Error()} // who cannot look has not seen that there is nothing
	}
	living := map[uint64]bool{}
	for _, pid := range pids {
		living[proctree.LineageOf(pid)] = true
	}
	server, spares := s.pid(), 0
	return processesWith(func(pid int) bool {
		n := proctree.LineageOf(pid)
		if !s.isLineageTag(n) || pid == server || living[n] {
			return false
		}
		switch verb(pid) {
		case "__watchdog": // it outlives the server
			return false
		case protocol.TypeSpare:
			spares++
			return spares > configuration.DefaultSpares // it was an agent that is gone
		default:
			return true
		}
	}, s.mark)
}

// verb is the first argument of a process; "" if it has ended, or has none.
func verb(pid int) string {
	line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)) // it may have ended
	args := strings.Split(string(line), "\x00")
	return args[min(1, len(args)-1)]
}

// processesWith lists the processes that live and are wanted, or have a mark.
func processesWith(wanted func(pid int) bool, marks ...string) (found []string) {
	pids, err := proctree.All()
	if err != nil {
		return []string{err.Error()} // who cannot look has not seen that there is nothing
	}
	for _, pid := range pids {
		if pid == os.Getpid() {
			continue
		}
		// Both may be unreadable: it has ended, or is somebody else's.
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		environ, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		marked := slices.ContainsFunc(marks, func(mark string) bool {
			return strings.Contains(string(line), mark) || strings.Contains(string(environ), mark)
		})
		// What has ended and waits for its parent has neither, but is wanted.
		if marked || len(line) > 0 && wanted(pid) {
			found = append(found, fmt.Sprintf("process %d: %s", pid, strings.ReplaceAll(string(line), "\x00", " ")))
		}
	}
	return found
}

// resources is what the server holds that grows if it forgets to let go. Descriptors
// are -1 where only root may count them: the server guards its keys.
type resources struct{ descriptors, goroutines int }

// resources asks the server for its goroutines, and the kernel for its descriptors.
// Connections that wait for us are closed first.
func (s *server) resources(ctx context.Context) (resources, error) {
	c, err := s.call(ctx)
	if err != nil {
		return resources{}, err
	}
	c.Close()
	ready, err := c.Ready(ctx)
	if err != nil {
		return resources{}, err
	}
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", s.pid()))
	if errors.Is(err, fs.ErrPermission) {
		return resources{-1, ready.Goroutines}, nil
	}
	return resources{len(entries), ready.Goroutines}, err
}

// settledResources are resources once the process that waits to become an agent is there, too.
func (s *server) settledResources(ctx context.Context) (before resources, err error) {
	limited, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	for {
		now, err := s.resources(ctx)
		spares := processesWith(func(pid int) bool { return s.isLineageTag(proctree.LineageOf(pid)) && verb(pid) == protocol.TypeSpare })
		if err != nil || now == before && len(spares) >= configuration.DefaultSpares || !pause(limited, 100*time.Millisecond) {
			return now, err
		}
		before = now
	}
}

// exceeding tells what is held beyond what was, and a few that come once.
func (h resources) exceeding(was resources) (found []string) {
	if h.descriptors > was.descriptors+maxExtra {
		found = append(found, fmt.Sprintf("%d descriptors, and there were %d", h.descriptors, was.descriptors))
	}
	if h.goroutines > was.goroutines+maxExtra {
		found = append(found, fmt.Sprintf("%d goroutines, and there were %d", h.goroutines, was.goroutines))
	}
	return found
}
