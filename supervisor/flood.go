package supervisor

import (
	"sync/atomic"
	"time"
)

const (
	// floodFrames and floodBytes are how much of one agent's output is read before its
	// reader looks whether other agents have turns, if it came within floodTime.
	floodFrames = 128
	floodBytes  = 64 << 10
	floodTime   = 20 * time.Millisecond
	// floodPause is how long it leaves the processors to them then. A pipe that nobody
	// reads stops the child, too.
	floodPause = time.Millisecond
	// sinceTurn is how long after its end a turn counts: often another one follows.
	sinceTurn = 10 * time.Millisecond
)

// activity tells which turns run. It is safe for concurrent use.
type activity struct {
	running atomic.Int64
	last    atomic.Pointer[endedTurn]
}

// endedTurn is the turn that ended last.
type endedTurn struct {
	agent *Agent
	at    time.Time
}

func (x *activity) begun() { x.running.Add(1) }

func (x *activity) ended(a *Agent) {
	x.running.Add(-1)
	x.last.Store(&endedTurn{a, time.Now()})
}

// besides reports whether another agent than a, of which a turn runs, has a turn, or had
// one just now.
func (x *activity) besides(a *Agent) bool {
	if x.running.Load() > 1 {
		return true
	}
	last := x.last.Load()
	return last != nil && last.agent != a && time.Since(last.at) < sinceTurn
}

// outputPace lets the reader of an agent that floods give way to other agents' turns. It
// belongs to that reader.
type outputPace struct {
	frames, bytes int
	since         time.Time // they are counted
}

// read accounts for a frame, and pauses if it is time to. A child that ends does not wait
// for its reader.
func (p *outputPace) read(a *Agent, bytes int) {
	p.frames++
	p.bytes += bytes
	if p.frames < floodFrames && p.bytes < floodBytes {
		return
	}
	flood := time.Since(p.since) < floodTime
	*p = outputPace{since: time.Now()}
	if flood && a.sup.activity.besides(a) {
		<-time.After(floodPause)
	}
}
