package supervisor

import "context"

// Settle waits until no agent has a turn that runs or waits. It ends nothing and
// keeps nobody from beginning another one. The error is that of ctx if it ends
// first.
func (s *Supervisor) Settle(ctx context.Context) error {
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

// turns are those of all agents that run or wait.
func (s *Supervisor) turns() []*Turn {
	s.mu.Lock()
	defer s.mu.Unlock()
	var turns []*Turn
	for _, a := range s.agents {
		a.mu.Lock()
		if a.turn != nil {
			turns = append(turns, a.turn)
		}
		turns = append(turns, a.queue...)
		a.mu.Unlock()
	}
	return turns
}
