package main

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// process is one that the system lists.
type process struct {
	pid, parent int
	name        string // at most 15 bytes
	ended       bool   // and not waited for
}

// descendants are the processes that descend from one, itself excluded.
func descendants(pid int) ([]process, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	children := map[int][]process{}
	for _, entry := range entries {
		id, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		stat, err := os.ReadFile("/proc/" + entry.Name() + "/stat")
		if err != nil {
			continue // it has ended meanwhile
		}
		if p, ok := parseStat(id, stat); ok {
			children[p.parent] = append(children[p.parent], p)
		}
	}
	found := children[pid]
	for i := 0; i < len(found); i++ {
		found = append(found, children[found[i].pid]...)
	}
	return found, nil
}

// parseStat reads /proc/PID/stat: "PID (NAME) STATE PARENT …", where NAME may
// hold anything.
func parseStat(pid int, stat []byte) (process, bool) {
	open, end := bytes.IndexByte(stat, '('), bytes.LastIndexByte(stat, ')')
	if open < 0 || end < open {
		return process{}, false
	}
	rest := strings.Fields(string(stat[end+1:]))
	if len(rest) < 2 {
		return process{}, false
	}
	parent, err := strconv.Atoi(rest[1])
	return process{pid: pid, parent: parent, name: string(stat[open+1 : end]), ended: rest[0] == "Z"}, err == nil
}

// descriptors is how many a process has open.
func descriptors(pid int) (int, error) {
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	return len(open), err
}
