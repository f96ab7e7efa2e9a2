package agents

import (
	"fmt"
	"sync"

	"nexus.internal/bridge/api"
	"nexus.internal/supervisor"
)

// DefaultTreeAgents is how many agents there may be of one that no agent created:
// itself, those that it created, and theirs.
const DefaultTreeAgents = 32

// treeLimit bounds how many agents are below one. It knows those that are being started, so
// that two starts at once are counted. The zero value is ready.
type treeLimit struct {
	mu       sync.Mutex          // guards starting, and each count with what follows from it
	starting map[string][]string // the ancestors of each agent that is being started
}

// add counts an agent that is to be started among those of each agent above
// it. It returns what takes it out of the count of starts again, once the agent has
// been started or not; the error is TOO_MANY_AGENTS.
func (b *treeLimit) add(sup *supervisor.Supervisor, s supervisor.Spec) (started func(), err error) {
	line := ancestors(sup, s)
	if len(line) == 0 {
		return func() {}, nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	sizes := map[string]int{}
	infos := sup.Agents()
	parents := make(map[string]string, len(infos))
	for _, info := range infos {
		parents[info.ID] = info.Labels.Parent
	}
	for _, info := range infos {
		sizes[info.ID]++ // itself
		for at, n := parents[info.ID], 0; at != "" && n <= maxDepth; at, n = parents[at], n+1 {
			sizes[at]++
		}
	}
	for other, line := range b.starting {
		if _, counted := parents[other]; !counted {
			for _, at := range line {
				sizes[at]++
			}
		}
	}
	for _, at := range line {
		if most := mostAgents(sup, at); most > 0 && sizes[at] >= most {
			return nil, &api.Error{
				Kind:        api.KindTooManyAgents,
				Details:     fmt.Sprintf("agent %s and the agents created for it are %d, as many as its limits.agents allows", at, most),
				Suggestions: []string{"Destroy an agent that is not needed any more, or raise limits.agents of the first of them by set_limits."},
			}
		}
	}
	if b.starting == nil {
		b.starting = map[string][]string{}
	}
	b.starting[s.ID] = line
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.starting, s.ID)
	}, nil
}

// ancestors are the agents above one that is to be started, its creator first.
func ancestors(sup *supervisor.Supervisor, s supervisor.Spec) (line []string) {
	if s.Labels.Parent == "" {
		return nil
	}
	line = append([]string{s.Labels.Parent}, s.Ancestors...)
	for at := line[len(line)-1]; len(line) <= maxDepth; {
		a, err := sup.Agent(at)
		if err != nil {
			break
		}
		if at = a.Info().Labels.Parent; at == "" {
			break
		}
		line = append(line, at)
	}
	return line
}

// mostAgents is the bound of an agent and of those below it; 0 is none.
func mostAgents(sup *supervisor.Supervisor, id string) int {
	a, err := sup.Agent(id)
	if err != nil {
		return DefaultTreeAgents // it is saved, and its agents run
	}
	if most := a.Info().MaxAgents; most != nil {
		return int(*most)
	}
	return DefaultTreeAgents
}
