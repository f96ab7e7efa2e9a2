package main

import (
	"fmt"
	"testing"

	"nexus.internal/protocol/proctree"
)

// A child has the number that its starter told it when it is ready, also if the starter
// does not put it on.
func TestChildJoinsItsLineage(t *testing.T) {
	const number = uint64(1)<<41 + 5
	p := command(t, t.TempDir(), []string{fmt.Sprint(proctree.LineageVariable, "=", number)})
	p.start()
	if got := proctree.LineageOf(p.cmd.Process.Pid); got != number {
		t.Errorf("it bears %d, want %d", got, number)
	}
	p.stdin.Close()
	if status := p.wait(); status != 0 {
		t.Errorf("exit status %d, stderr %s", status, p.stderr.String())
	}
}
