package supervisor

import (
	"slices"
	"strings"
	"sync"
)

// CycleError says that a turn would wait for itself.
type CycleError struct {
	// Path are the agents that wait for each other, the first one again at the
	// end.
	Path []string
}

func (e *CycleError) Error() string {
	return "would wait for itself: " + strings.Join(e.Path, " → ")
}

// waitGraph is who waits for whom. An agent runs one turn at a time, and a turn
// ends only once all its calls have: so agents that wait for each other in a
// circle wait for ever, whoever asked for their turns.
type waitGraph struct {
	mu sync.Mutex // guards what follows
	// of counts, for each agent, the prompts by which it waits for others.
	of map[string]map[string]int
}

func (w *waitGraph) begin(from, to string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if path := w.path(to, from); path != nil {
		return &CycleError{Path: append([]string{from}, path...)}
	}
	if w.of == nil {
		w.of = map[string]map[string]int{}
	}
	if w.of[from] == nil {
		w.of[from] = map[string]int{}
	}
	w.of[from][to]++
	return nil
}

func (w *waitGraph) end(from, to string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.of[from][to]--; w.of[from][to] == 0 {
		delete(w.of[from], to)
	}
	if len(w.of[from]) == 0 {
		delete(w.of, from)
	}
}

// path is a way from one agent to another by those that it waits for, both
// included; nil if there is none. It looks at each agent once.
func (w *waitGraph) path(from, to string) []string {
	before := map[string]string{from: ""}
	for next := []string{from}; len(next) > 0; next = next[1:] {
		at := next[0]
		if at == to {
			var way []string
			for ; at != ""; at = before[at] {
				way = append(way, at)
			}
			slices.Reverse(way)
			return way
		}
		for other := range w.of[at] {
			if _, seen := before[other]; !seen {
				before[other] = at
				next = append(next, other)
			}
		}
	}
	return nil
}
