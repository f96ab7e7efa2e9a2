package agents

import (
	"nexus.internal/protocol"
	"nexus.internal/protocol/transcript"
)

// maxDepth is how many ancestors an agent may have.
const maxDepth = 5

// line are the agents above one by what is saved, its creator first, as far as
// they are still there.
func (r *Registry) line(saved transcript.Summary) (line []string) {
	for range maxDepth {
		id := protocol.Value(saved.Settings.ParentAgentID)
		if id == "" {
			break
		}
		creator, err := r.o.Sessions.Summary(id)
		if err != nil || creator.Header.CreatedAt.After(saved.Header.CreatedAt) {
			break
		}
		line, saved = append(line, id), creator
	}
	return line
}

// Descends reports whether an agent was created by the other one, or by one that
// was, and so on.
func (r *Registry) Descends(id, ancestor string) bool {
	for range maxDepth + 1 {
		a, err := r.o.Supervisor.Agent(id)
		if err != nil {
			return false
		}
		if id = a.Info().Labels.Parent; id == ancestor {
			return true
		}
	}
	return false
}

// Created lists the agents that run and were created for another.
func (r *Registry) Created(id string) (ids []string) {
	for _, info := range r.o.Supervisor.Agents() {
		if info.Labels.Parent == id {
			ids = append(ids, info.ID)
		}
	}
	return ids
}
