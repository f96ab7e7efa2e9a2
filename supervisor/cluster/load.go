package cluster

import (
	"bytes"
	"os"
	"runtime"
	"strconv"
)

// Load is what a machine has, and what of it is taken.
type Load struct {
	Processors  int   `json:"processors"`
	MemoryBytes int64 `json:"memory_bytes"` // 0 where it is not known
	FreeBytes   int64 `json:"free_bytes"`   // of them, what programs could still get
	Agents      int   `json:"agents"`
	MaxAgents   int   `json:"max_agents"` // that it takes; 0 for no bound
}

// Counter counts the agents of this machine. It is safe for concurrent use.
type Counter interface{ Count() int }

// Measure is the load of this machine now; agents may be nil.
func Measure(agents Counter) Load {
	l := Load{Processors: runtime.NumCPU()}
	l.MemoryBytes, l.FreeBytes = memory()
	if agents != nil {
		l.Agents = agents.Count()
	}
	return l
}

// memory is what Linux tells of the machine's; 0 elsewhere.
func memory() (all, free int64) {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, 0
	}
	for line := range bytes.Lines(text) {
		fields := bytes.Fields(line) // as in "MemTotal: 1024 kB"
		if len(fields) != 3 {
			continue
		}
		kib, _ := strconv.ParseInt(string(fields[1]), 10, 64) // 0 for what is no number
		switch string(fields[0]) {
		case "MemTotal:":
			all = kib << 10
		case "MemAvailable:":
			free = kib << 10
		}
	}
	return all, free
}
