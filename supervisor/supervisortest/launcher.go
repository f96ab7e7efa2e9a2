package supervisortest

import (
	"context"
	"sync"
	"time"

	"nexus.internal/protocol"
	"nexus.internal/supervisor"
)

// Play is what one incarnation does. The zero value is ready at once and
// echoes.
type Play struct {
	// ReadyAfter delays ready.
	ReadyAfter time.Duration
	// NeverReady waits until the launch is given up.
	NeverReady bool
	// Refuse makes the launch fail with this error at once (after ReadyAfter).
	Refuse error
	// Version is stated in ready; 0 means the right one.
	Version uint32
	// Prompt plays a turn, in a goroutine of its own; nil means Echo.
	Prompt func(c *Child, p protocol.Prompt)
	// Command may answer any other command and return true, or leave it to the
	// default by returning false. It runs in the child's reader: while it
	// blocks, nothing else is read.
	Command func(c *Child, cmd protocol.Command) bool
	// Deaf never reads a command: Send blocks for 10 s and fails.
	Deaf bool
	// StopAfter is how long the polite rungs of Stop take; the child then
	// exits with status 0. Longer than 5 s means that it is killed then.
	StopAfter time.Duration
}

// Launcher is a supervisor.Launcher in memory. The zero value is ready.
type Launcher struct {
	// Plan says what the nth incarnation of an agent does, counted from 1; nil
	// means the zero Play for all.
	Plan func(s supervisor.Spec, n int) Play

	mu     sync.Mutex // guards all below
	agents map[string]*record
}

// record is what a launcher keeps of an agent: its saved session.
type record struct {
	launches int
	again    []bool
	child    *Child
	messages []protocol.Message
}

// Child returns the latest incarnation of an agent; nil if there was none.
func (l *Launcher) Child(id string) *Child {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r := l.agents[id]; r != nil {
		return r.child
	}
	return nil
}

// Launches returns the again flag of each launch of an agent so far.
func (l *Launcher) Launches(id string) []bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r := l.agents[id]; r != nil {
		return append([]bool(nil), r.again...)
	}
	return nil
}

func (l *Launcher) begin(s supervisor.Spec, again bool) (Play, *record, int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.agents == nil {
		l.agents = map[string]*record{}
	}
	r := l.agents[s.ID]
	if r == nil || !again {
		r = &record{}
		l.agents[s.ID] = r
	}
	r.launches++
	r.again = append(r.again, again)
	var play Play
	if l.Plan != nil {
		play = l.Plan(s, r.launches)
	}
	return play, r, r.launches
}

// Launch plays the next incarnation.
func (l *Launcher) Launch(ctx context.Context, s supervisor.Spec, again bool) (supervisor.Conn, error) {
	play, r, n := l.begin(s, again)
	if play.NeverReady {
		<-ctx.Done()
	} else if play.ReadyAfter > 0 {
		select {
		case <-time.After(play.ReadyAfter):
		case <-ctx.Done():
		}
	}
	if ctx.Err() != nil {
		return nil, &supervisor.StartError{Err: context.Cause(ctx), Exit: &supervisor.Exit{Code: -1, Signal: "killed"}}
	}
	if play.Refuse != nil {
		return nil, play.Refuse
	}
	if play.Version != 0 && play.Version != protocol.Version {
		return nil, &supervisor.StartError{
			Err:  &supervisor.HandshakeError{Err: &protocol.VersionError{Got: play.Version}},
			Exit: &supervisor.Exit{Code: -1, Signal: "killed"},
		}
	}
	c := newChild(l, r, s, play, n)
	l.mu.Lock()
	r.child = c
	l.mu.Unlock()
	c.work.Go(c.serve)
	return (*conn)(c), nil
}
