package replicated

import "context"

// ShipAll ships at once what shipChanged would in its time.
func (s *Store) ShipAll(ctx context.Context) { s.shipAll(ctx) }

// Weight is what a machine throws for an agent.
func Weight(machine, agent string) uint64 { return weight(machine, agent) }

// Judged reports whether it is known what becomes of an orphan, so that it is asked for no more. Orphans does not run.
func (s *Store) Judged(agent string) bool {
	o := s.orphans[agent]
	return o != nil && o.asked
}
