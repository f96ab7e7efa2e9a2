package proc_test

import (
	"testing"
	"time"

	"nexus.internal/supervisor/proc"
)

// What a process takes is seen while it lives, and what it took afterwards.
func TestUsage(t *testing.T) {
	p := start(proc.Spec{Env: role("spinner")})
	defer p.Discard()
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	var u proc.Usage
	for began := time.Now(); u.CPU < 50*time.Millisecond; <-look.C {
		if u = p.Usage(); time.Since(began) > patience {
			t.Fatalf("a spinning process takes %+v", u)
		}
	}
	if u.MemoryBytes < 100<<10 {
		t.Errorf("a running process takes %d bytes", u.MemoryBytes)
	}
	p.Stop(killed(), nil)
	if after := p.Usage(); after.CPU < u.CPU || after.MemoryBytes != 0 {
		t.Errorf("a process that is gone took %+v, and %+v before", after, u)
	}
}
