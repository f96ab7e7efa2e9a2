package tool

import (
	"os"
	"runtime"
	"sync"
)

// Processors bounds how many processors a process uses: one, as the goroutines of a turn
// work one after the other, so that a second processor would only cost wake-ups of threads
// that look for work, but all while tools run at once. The zero value, and nil, leave the
// runtime as it is. It is safe for concurrent use; a process has one. See child/AGENT.md, D119.
type Processors struct {
	mu      sync.Mutex // guards all below
	limited bool       // else the runtime is left as it is
	wide    int        // how many want all
}

// Limit has the process use one processor, unless the variable GOMAXPROCS says that it has
// more. A server's children begin with one by that variable, which saves them the threads and
// the memory of others.
func (p *Processors) Limit() {
	p.mu.Lock()
	defer p.mu.Unlock()
	said := os.Getenv("GOMAXPROCS")
	if p.limited = said == "" || said == "1"; p.limited && runtime.GOMAXPROCS(0) > 1 { // it stops all
		runtime.GOMAXPROCS(1)
	}
}

// widen has the process use all processors until narrow is called.
func (p *Processors) widen() (narrow func()) {
	if p == nil {
		return func() {}
	}
	p.add(1)
	return func() { p.add(-1) }
}

func (p *Processors) add(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before := p.wide > 0
	p.wide += n
	switch now := p.wide > 0; {
	case !p.limited || now == before:
	case now:
		runtime.SetDefaultGOMAXPROCS()
	default:
		runtime.GOMAXPROCS(1)
	}
}
