package child_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"nexus.internal/child"
)

// Commands are acted on though nobody reads what the child writes; what waits
// is bounded, and whoever reads again is told what was lost.
func TestNobodyReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := start(t, t.Context(), options())
		p.want(`{"type":"ready"}`)
		p.send(hang[2:])
		synctest.Wait() // its first delta is stuck
		for i := range 1030 {
			p.send(fmt.Sprintf(`{"type":"ping","id":"p%d"}`, i))
		}
		p.send(`{"type":"set_model","id":"m","model":"b"}`)
		p.send(abort[2:])
		synctest.Wait()
		p.want(text[2:])
		for i := range 1024 {
			p.want(fmt.Sprintf(`{"type":"response","id":"p%d"}`, i))
		}
		p.want(`{"type":"error","id":null,"message":"stdout was not read: 7 answers were lost"}`)
		p.want(aborted[2:])
		p.want(cancelled[2:])
		p.want(abortOK[2:])
		p.send(`{"type":"get_session_stats","id":"s"}`)
		p.want(`{"id":"s","model":"b"}`)
		p.stdin.Close()
		if err := <-p.done; err != nil {
			t.Error(err)
		}
	})
}

func TestServeEnds(t *testing.T) {
	t.Run("when ctx ends, with the turn in flight saved", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			p := start(t, ctx, options())
			p.want(`{"type":"ready"}`)
			p.send(hang[2:])
			p.want(text[2:])
			cancel()
			p.want(aborted[2:])
			p.want(cancelled[2:])
			if err := <-p.done; err != nil {
				t.Error(err)
			}
		})
	})
	t.Run("when a write fails", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := start(t, t.Context(), options())
			p.want(`{"type":"ready"}`)
			p.out.Close()
			p.send(hang[2:])
			if err := <-p.done; !errors.Is(err, io.ErrClosedPipe) {
				t.Errorf("got %v, want %v", err, io.ErrClosedPipe)
			}
		})
	})
	t.Run("within the grace though nobody reads", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			o := options()
			p := start(t, t.Context(), o)
			p.want(`{"type":"ready"}`)
			p.send(`{"type":"prompt","id":"1","message":"say hello"}`)
			begin := time.Now()
			p.send(`{"type":"shutdown"}`)
			if err := <-p.done; err != nil {
				t.Error(err)
			}
			if took := time.Since(begin); took > child.DefaultGrace {
				t.Errorf("took %v", took)
			}
			p.out.Close() // frees the write that is stuck
		})
	})
	t.Run("though nobody reads and a follow-up waits", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			o := options()
			var endings []error
			o.Ending = func(err error) { endings = append(endings, err) }
			p := start(t, t.Context(), o)
			p.want(`{"type":"ready"}`)
			p.send(`{"type":"prompt","id":"1","message":"say hello"}`)
			p.send(`{"type":"follow_up","id":"2","message":"say more"}`)
			p.send(`{"type":"shutdown"}`)
			if err := <-p.done; err != nil {
				t.Error(err)
			}
			p.out.Close() // frees the writes that are stuck
			if diff := cmp.Diff([]error{nil}, endings); diff != "" {
				t.Errorf("endings (-want +got):\n%s", diff)
			}
		})
	})
	t.Run("though a list of models never comes", func(t *testing.T) {
		o := options()
		o.Models = catalogue{wait: true}
		play(t, o, []string{
			`> {"type":"get_available_models","id":"1"}`, `> {"type":"ping","id":"p"}`, `< {"id":"p"}`, "eof",
			`< {"id":"1","ok":false}`,
		})
	})
}
