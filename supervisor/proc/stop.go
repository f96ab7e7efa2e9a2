package proc

import (
	"context"
	"syscall"
	"time"
)

// Graces are how long each rung of the ladder may take (SPEC §5.5). Zero
// fields have the defaults that are named.
type Graces struct {
	Shutdown time.Duration // after the polite word; 2 s
	Close    time.Duration // after closing stdin; 1 s
	Term     time.Duration // after SIGTERM; 2 s
}

func (g Graces) orDefault() Graces {
	for _, rung := range []struct {
		value     *time.Duration
		otherwise time.Duration
	}{{&g.Shutdown, 2 * time.Second}, {&g.Close, time.Second}, {&g.Term, 2 * time.Second}} {
		if *rung.value == 0 {
			*rung.value = rung.otherwise
		}
	}
	return g
}

// Stop ends the process and returns when nothing of it is left, as far as it was
// in its group or its guard reaches: polite is called (nil leaves this rung out),
// then stdin is closed, then the group gets TERM, then KILL, with a grace after
// each. Before each but the last the group gets CONT, as a stopped process hears
// nothing. When ctx ends, it goes on with KILL at once. It is idempotent; callers who come later wait with the first
// one, and their ctx hurries it too. A polite that blocks in Write is set free
// by the second rung.
func (p *Process) Stop(ctx context.Context, polite func()) Exit {
	if ctx.Err() != nil {
		p.hurryUp()
	}
	release := context.AfterFunc(ctx, p.hurryUp)
	defer release()
	p.stopOnce.Do(func() { p.ladder(polite) })
	return p.Exit()
}

func (p *Process) hurryUp() { p.hurryOnce.Do(func() { close(p.hurry) }) }

func (p *Process) ladder(polite func()) {
	if p.hurried() {
		p.signal(syscall.SIGKILL) // before it sees the end of stdin and tidies up
		<-p.done
		return
	}
	gone := false
	p.signal(syscall.SIGCONT)
	if polite != nil && !p.hurried() {
		said := make(chan struct{})
		go func() {
			defer close(said)
			polite()
		}()
		gone = p.await(p.graces.Shutdown)
		defer func() { <-said }() // set free by the next line, if by nothing else
	}
	p.stdin.Close()
	p.signal(syscall.SIGCONT)
	if gone || p.await(p.graces.Close) {
		return
	}
	if !p.hurried() {
		p.signal(syscall.SIGTERM)
		p.signal(syscall.SIGCONT)
	}
	if p.await(p.graces.Term) {
		return
	}
	p.signal(syscall.SIGKILL)
	<-p.done
}

func (p *Process) hurried() bool {
	select {
	case <-p.hurry:
		return true
	default:
		return false
	}
}

// await reports whether the process is gone within d, or at all if hurried.
func (p *Process) await(d time.Duration) bool {
	patience := time.NewTimer(d)
	defer patience.Stop()
	select {
	case <-p.done:
		return true
	case <-p.hurry:
	case <-patience.C:
	}
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// signal signals the process's group, unless its id may have passed to others.
func (p *Process) signal(sig syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.reaped {
		syscall.Kill(-p.cmd.Process.Pid, sig) //nolint:errcheck // an empty group is what we want
	}
}
