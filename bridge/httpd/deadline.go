package httpd

import (
	"net"
	"time"
)

// deadlines are the read deadline and the write deadline of a connection, kept by one timer
// that seldom fires. net/http moves deadlines seven times in a request, nearly always to a later
// time; a timer of the runtime's poller for each of these would wake a thread. This timer is set
// only for a deadline that comes before it. When it fires, it is set again for one that was moved.
// The ending's mu guards them.
type deadlines struct {
	read, write deadline
	timer       *time.Timer // nil before the first deadline
	fires       time.Time   // when the timer does; zero if it is not set
	over        bool        // the connection is closed
}

// deadline is one of a connection.
type deadline struct {
	at     time.Time // zero for none
	passed bool      // reads, or writes, of the connection fail
}

// SetReadDeadline implements [net.Conn]. It does nothing after hangUp.
func (c *conn) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.hungUp.Load() {
		return nil
	}
	return c.setDeadline(&c.read, t, c.Conn.SetReadDeadline)
}

func (c *conn) SetWriteDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.setDeadline(&c.write, t, c.Conn.SetWriteDeadline)
}

func (c *conn) SetDeadline(t time.Time) error {
	if err := c.SetReadDeadline(t); err != nil {
		return err
	}
	return c.SetWriteDeadline(t)
}

// setDeadline moves d, which set sets for the connection itself. mu is held.
func (c *conn) setDeadline(d *deadline, t time.Time, set func(time.Time) error) error {
	if c.over {
		return net.ErrClosed
	}
	d.at = t
	if !t.IsZero() {
		now := time.Now()
		if !t.After(now) {
			d.passed = true
			return set(now)
		}
		c.setTimer(now, t)
	}
	if !d.passed {
		return nil
	}
	d.passed = false
	return set(time.Time{})
}

// setTimer has the timer fire at t, if it does not fire before. mu is held.
func (c *conn) setTimer(now, t time.Time) {
	switch {
	case !c.fires.IsZero() && !t.Before(c.fires):
		return
	case c.timer == nil:
		c.timer = time.AfterFunc(t.Sub(now), c.expire)
	default:
		c.timer.Reset(t.Sub(now))
	}
	c.fires = t
}

// expire is called by the timer: reads and writes fail whose deadline has come.
func (c *conn) expire() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fires = time.Time{}
	if c.over {
		return
	}
	if !c.hungUp.Load() {
		c.pass(&c.read, c.Conn.SetReadDeadline)
	}
	c.pass(&c.write, c.Conn.SetWriteDeadline)
}

// pass has d pass if its time has come, and else sets the timer for it. mu is held.
func (c *conn) pass(d *deadline, set func(time.Time) error) {
	now := time.Now()
	switch {
	case d.at.IsZero() || d.passed:
	case d.at.After(now):
		c.setTimer(now, d.at)
	default:
		d.passed = true
		_ = set(now) // the connection may have ended
	}
}

// stopTimer is called once the connection is closed.
func (c *conn) stopTimer() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
	if c.timer != nil {
		c.timer.Stop()
	}
}
