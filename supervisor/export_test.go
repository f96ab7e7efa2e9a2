package supervisor

// Move is the table of states, for tests.
func Move(from, to State) State { return from.move(to) }

// Bounds, for tests.
const (
	HubKeep  = hubKeep
	HubLimit = hubLimit
)
