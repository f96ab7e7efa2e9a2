package replicated

import (
	"context"
	"time"
)

// ShipAll ships at once what shipChanged would in its time.
func (s *Store) ShipAll(ctx context.Context) { s.shipAll(ctx) }

// TellAfter has the others be told of prompts without a name after so long.
func (s *Store) TellAfter(d time.Duration) { s.unnamedFor = d }

// ForgetAgreement has the store not know that it has agreed with a majority on anything.
func (s *Store) ForgetAgreement() { s.lists.agreed.Store(nil) }

// Weight is what a machine throws for an agent.
func Weight(machine, agent string) uint64 { return weight(machine, agent) }

// Judged reports whether it is known what becomes of an orphan, so that it is asked for no more. Orphans does not run.
func (s *Store) Judged(agent string) bool {
	o := s.orphans[agent]
	return o != nil && o.asked
}

// SweepObjects sweeps the object store as sweepObjects does every hour.
func (s *Store) SweepObjects(ctx context.Context, unclaimed map[string]bool) error {
	return sweep(ctx, s, unclaimed)
}
