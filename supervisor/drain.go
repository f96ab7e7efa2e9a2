package supervisor

import (
	"context"
	"fmt"
)

// WaitIdle waits until no agent has a turn that runs or waits. It ends nothing and
// keeps nobody from beginning another one. The error is that of ctx if it ends
// first.
func (s *Supervisor) WaitIdle(ctx context.Context) error {
	for {
		turns := s.turns()
		if len(turns) == 0 {
			return nil
		}
		for _, t := range turns {
			select {
			case <-t.done:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
}

// StopAccepting takes nothing more, from nobody, and ends what waits as cancelled
// (ErrDraining). What runs goes on, and nothing begins any more. It may be called
// again.
func (s *Supervisor) StopAccepting() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.draining = true
	for _, a := range s.agents {
		a.stopAccepting()
	}
}

// stopAccepting is Supervisor.StopAccepting for one agent.
func (a *Agent) stopAccepting() {
	a.update(func(s *agentState) []effect {
		if s.closed == nil {
			s.closed = ErrDraining
			s.failQueue(Cancelled, fmt.Errorf("%w: %w", ErrAborted, ErrDraining))
		}
		return s.elsewhere() // the Supervisor's mutex is held
	})
}

// CancelRunning cancels the turns that run (ErrDraining) and waits until they have ended. The
// error is that of ctx if it ends first; the cancels go on then.
func (s *Supervisor) CancelRunning(ctx context.Context) error {
	for _, a := range s.all() {
		a.update(func(s *agentState) []effect {
			if t := s.turns.running(); t != nil {
				s.abort(t, fmt.Errorf("%w: %w", ErrAborted, ErrDraining))
			}
			return s.elsewhere()
		})
	}
	return s.WaitIdle(ctx)
}

// turns are those of all agents that run or wait.
func (s *Supervisor) turns() []*Turn {
	s.mu.Lock()
	defer s.mu.Unlock()
	var turns []*Turn
	for _, a := range s.agents {
		a.update(func(s *agentState) []effect {
			turns = append(turns, s.turns.all()...)
			return nil
		})
	}
	return turns
}
