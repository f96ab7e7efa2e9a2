package bridge

import (
	"context"
	"path/filepath"

	"nexus.internal/bridge/agents"
	"nexus.internal/bridge/plan"
	"nexus.internal/bridge/sessions"
	"nexus.internal/supervisor"
)

// Imported says what became of what another home has.
type Imported struct {
	Node     string           `json:"node"` // the machine that has now what came
	Sessions []agents.Brought `json:"sessions"`
	Runs     []plan.Brought   `json:"runs"`
}

// Import makes what is saved in another home, which nobody uses until it returns, a part of this machine's in its cluster: sessions with what is kept of their
// agents, records of runs, and results of tasks. On an error it returns what became of what came before; called again, it goes on. It
// ends early when the server does.
func (s *Server) Import(ctx context.Context, home string, o agents.BringOptions) (done Imported, err error) {
	if !s.requests.Enter() {
		return done, supervisor.ErrDraining
	}
	defer s.requests.Leave()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	ended := make(chan struct{})
	defer func() { cancel(nil); <-ended }()
	go func() {
		defer close(ended)
		select {
		case <-s.requests.Closing():
			cancel(supervisor.ErrDraining)
		case <-ctx.Done():
		}
	}()
	done.Sessions, err = agents.Bring(ctx, s.agents, sessions.NewReader(home), o)
	if err != nil {
		return done, err
	}
	done.Node = s.o.Machines.Self()
	done.Runs, err = s.plans.Bring(ctx, filepath.Join(home, "plans"), o.DryRun)
	return done, err
}
