package supervisor

// Move is the table of states, for tests.
func Move(from, to State) State { return from.move(to) }

// Bounds, for tests.
const (
	HubKeep  = hubKeep
	HubLimit = hubLimit
)

// Waits is who waits for whom, for tests.
type Waits struct{ waits }

// Begin records a wait, or refuses one that would close a circle.
func (w *Waits) Begin(from, to string) error { return w.begin(from, to) }
