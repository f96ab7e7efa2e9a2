package engine_test

import (
	"testing"
	"time"

	"nexus.internal/supervisor/cluster/engine"
)

// The variables are the server's own, which had its times before.
func TestElectionTimes(t *testing.T) {
	before, are, want := engine.ElectionTimes()
	if theirs := [...]time.Duration{4 * time.Second, 9 * time.Second}; before != theirs {
		t.Errorf("the server of NATS elects within %v, and not within %v: look whether it has an option for that by now, or times that suit", before, theirs)
	}
	if are != want {
		t.Errorf("it elects within %v, and is to within %v", are, want)
	}
}
