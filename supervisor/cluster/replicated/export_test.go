package replicated

import "context"

// ShipAll ships at once what shipChanged would in its time.
func (s *Store) ShipAll(ctx context.Context) { s.shipAll(ctx) }
