package supervisor

import (
	"fmt"
	"slices"
)

// State is what an agent is doing. The zero value is Stopped.
type State int

const (
	Stopped  State = iota // no incarnation; a prompt starts one
	Starting              // an incarnation is launched, or about to be, and not ready yet
	Ready                 // waits for a prompt
	Busy                  // a turn runs
	Stopping              // an incarnation is being ended
	Backoff               // crashed; a restart is due
	Failed                // crashed too often, or no child of ours; Shutdown makes it Stopped
)

var stateNames = [...]string{
	Stopped: "stopped", Starting: "starting", Ready: "ready", Busy: "busy",
	Stopping: "stopping", Backoff: "backoff", Failed: "failed",
}

// legal is the table of moves: the states that may follow each state.
var legal = [...][]State{
	Stopped:  {Starting},
	Starting: {Ready, Stopping, Stopped, Backoff, Failed},
	Ready:    {Busy, Stopping, Backoff, Failed},
	Busy:     {Ready, Stopping, Backoff, Failed},
	Stopping: {Stopped, Backoff, Failed},
	Backoff:  {Starting, Stopped},
	Failed:   {Stopped},
}

// String is the name that stands in events and answers.
func (s State) String() string {
	if s < 0 || int(s) >= len(stateNames) {
		return fmt.Sprintf("State(%d)", int(s))
	}
	return stateNames[s]
}

// States lists all states.
func States() []State {
	return []State{Stopped, Starting, Ready, Busy, Stopping, Backoff, Failed}
}

// move returns next, or panics if the table does not allow it: then the
// supervisor itself is broken.
func (s State) move(next State) State {
	if !slices.Contains(legal[s], next) {
		panic(fmt.Sprintf("supervisor: no move from %s to %s", s, next))
	}
	return next
}
