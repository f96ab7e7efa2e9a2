package engine

import "time"

// ElectionTimes are those of the server of NATS before this package has changed them, those that it has now, and those that it is to have.
func ElectionTimes() (before, are, want [2]time.Duration) {
	return theirs, [2]time.Duration{minElectionTimeout, maxElectionTimeout}, [2]time.Duration{electAfter, electBefore}
}
