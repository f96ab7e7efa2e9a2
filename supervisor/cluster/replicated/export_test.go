package replicated

import "context"

// ShipAll ships at once what shipChanged would in its time.
func (s *Store) ShipAll(ctx context.Context) { s.shipAll(ctx) }

// Weight is what a machine throws for an agent.
func Weight(machine, agent string) uint64 { return weight(machine, agent) }
