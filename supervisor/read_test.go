package supervisor_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"nexus.internal/protocol"
	"nexus.internal/supervisor"
	"nexus.internal/supervisor/supervisortest"
)

// readAll reads a turn from a place to its end.
func (h *house) readAll(turn *supervisor.Turn, from int) string {
	h.Helper()
	var all strings.Builder
	for {
		text, _, err := turn.Read(h.Context(), supervisor.Place{Offset: from + all.Len()})
		if errors.Is(err, io.EOF) && text == "" {
			return all.String()
		}
		if err != nil || text == "" || len(text) > supervisor.MaxRead || !utf8.ValidString(text) {
			h.Fatalf("Read from %d: %d bytes, %v", from+all.Len(), len(text), err)
		}
		all.WriteString(text)
	}
}

func TestRead(t *testing.T) {
	play := supervisortest.Play{Prompt: func(c *supervisortest.Child, p protocol.Prompt) {
		c.Sleep(time.Second)
		c.Say("one ")
		c.Sleep(time.Second)
		c.Emit(protocol.MessageUpdate{Event: protocol.ToolcallStart{ToolID: "1", ToolName: "sleep"}})
		c.Say("two")
		c.Sleep(time.Second)
		c.Finish(p, "")
	}}
	run(t, always(play), func(h *house) {
		a := h.start("alice")
		before, turn := h.prompt(a, "0", ""), h.prompt(a, "1", "")
		start := time.Now()
		read := func(from int, want string, after time.Duration) {
			h.Helper()
			got, _, err := turn.Read(h.Context(), supervisor.Place{Offset: from})
			if got != want || err != nil || since(start) != after {
				h.Errorf("Read from %d = %q, %v after %v, want %q after %v", from, got, err, since(start), want, after)
			}
		}
		read(0, "one ", 4*time.Second) // it waited for its turn
		ctx, cancel := context.WithTimeout(h.Context(), time.Second/2)
		defer cancel()
		if got, _, err := turn.Read(ctx, supervisor.Place{Offset: 4}); got != "" || !errors.Is(err, context.DeadlineExceeded) {
			h.Errorf("Read of nothing yet = %q, %v", got, err)
		}
		late := make(chan string, 2)
		for range cap(late) { // all who wait are told
			go func() { late <- h.readAll(turn, 4) }()
		}
		read(4, "\n\ntwo", 5*time.Second)
		read(0, "one \n\ntwo", 5*time.Second) // who joins has all of it
		for range cap(late) {
			if got := <-late; got != "\n\ntwo" {
				h.Errorf("read %q", got)
			}
		}
		if since(start) != 6*time.Second {
			h.Errorf("the end was told after %v", since(start))
		}
		h.outcome(before, supervisor.Completed)
		for _, ended := range []*supervisor.Turn{turn, h.prompt(a, "1", "")} {
			if got := h.readAll(ended, 0); got != h.outcome(ended, supervisor.Completed).Text {
				h.Errorf("read %q after the end", got)
			}
		}
	})
}

// Events are let go of while nobody reads; a turn has all of its text, up to
// the bound, whether it is read meanwhile or afterwards.
func TestReadLosesNothing(t *testing.T) {
	play := supervisortest.Play{Prompt: func(c *supervisortest.Child, p protocol.Prompt) {
		for range 60 {
			c.Say("x" + strings.Repeat("é", 75_000))
		}
		c.Sleep(time.Second)
		for range 20_000 {
			c.Say("y")
		}
		c.Finish(p, "")
	}}
	run(t, always(play), func(h *house) {
		turn := h.prompt(h.start("alice"), "1", "")
		meanwhile := make(chan string)
		go func() { meanwhile <- h.readAll(turn, 0) }()
		synctest.Wait()
		midway := make(chan string)
		go func() { midway <- h.readAll(turn, 0) }()
		whole := h.outcome(turn, supervisor.Completed)
		if !whole.Truncated || len(whole.Text) < supervisor.MaxText-1 {
			h.Fatalf("the turn's text has %d bytes", len(whole.Text))
		}
		for name, got := range map[string]string{"meanwhile": <-meanwhile, "midway": <-midway, "afterwards": h.readAll(turn, 0)} {
			if got != whole.Text {
				h.Errorf("%s: read %d bytes, want the %d of the result", name, len(got), len(whole.Text))
			}
		}
	})
}

// A turn that ends without a word, or without having run, ends its readers.
func TestReadOfNothing(t *testing.T) {
	run(t, always(supervisortest.Play{Prompt: supervisortest.UntilAborted}), func(h *house) {
		a := h.start("alice")
		running, waiting := h.prompt(a, "1", ""), h.prompt(a, "2", "")
		ended := make(chan string, 2)
		for _, turn := range []*supervisor.Turn{running, waiting} {
			go func() { ended <- turn.ID() + h.readAll(turn, 0) }()
		}
		synctest.Wait()
		a.Abort(h.Context(), "2")
		if got := <-ended; got != "2" {
			h.Errorf("got %q, want the end of the one that waited", got)
		}
		a.Abort(h.Context(), "1")
		if got := <-ended; got != "1working" {
			h.Errorf("got %q", got)
		}
	})
}
