package writequeue_test

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"nexus.internal/protocol/writequeue"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// tap is a stream that takes one piece each time it is opened.
type tap struct {
	open  chan struct{}
	got   []string
	err   error
	ready bool
	told  []error // of failures
}

func (s *tap) Write(pieces ...[]byte) error {
	<-s.open
	if s.err != nil {
		return s.err
	}
	s.got = append(s.got, string(bytes.Join(pieces, []byte(" "))))
	return nil
}

func (s *tap) Ready(int) bool   { return s.ready }
func (*tap) Lost(n int) []byte  { return fmt.Appendf(nil, "lost %d", n) }
func (s *tap) Failed(err error) { s.told = append(s.told, err) }

func TestPostNeverWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &tap{open: make(chan struct{})}
		w := writequeue.New(s, writequeue.Bounds{Pieces: 3, Bytes: 8})
		go w.Send([]byte("sent"))
		synctest.Wait() // it is stuck
		for _, piece := range []string{"1", "2", "too large", "3", "4", "5"} {
			w.Post([]byte(piece))
		}
		done := w.Close()
		synctest.Wait()
		select {
		case <-done:
			t.Fatal("closed while pieces wait")
		default:
		}
		w.Post([]byte("late"))
		close(s.open)
		<-done
		if diff := cmp.Diff([]string{"sent", "1", "2", "3", "lost 3"}, s.got); diff != "" {
			t.Errorf("written (-want +got):\n%s", diff)
		}
	})
}

// Pieces that wait go before the next that is sent: a flood does not starve
// them.
func TestSendWritesWhatWaitsFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &tap{open: make(chan struct{})}
		w := writequeue.New(s, writequeue.Bounds{Pieces: 9, Bytes: 99})
		flooded := make(chan struct{})
		go func() {
			defer close(flooded)
			for i := range 3 {
				w.Send(fmt.Appendf(nil, "sent %d", i))
			}
		}()
		synctest.Wait()
		w.Post([]byte("posted"))
		close(s.open)
		<-flooded
		<-w.Close()
		if diff := cmp.Diff([]string{"sent 0", "posted", "sent 1", "sent 2"}, s.got); diff != "" {
			t.Errorf("written (-want +got):\n%s", diff)
		}
	})
}

// Where there is room the piece is written before Post returns; where there is
// none, what follows stays behind it though there is room again.
func TestPostWritesAtOnceWhereThereIsRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &tap{open: make(chan struct{}, 9), ready: true}
		w := writequeue.New(s, writequeue.Bounds{Pieces: 9, Bytes: 99})
		s.open <- struct{}{}
		w.Post([]byte("1"))
		if len(s.got) != 1 {
			t.Fatal("not written at once")
		}
		s.ready = false
		w.Post([]byte("2"))
		synctest.Wait()
		s.ready = true
		w.Post([]byte("3"))
		close(s.open)
		<-w.Close()
		if diff := cmp.Diff([]string{"1", "2", "3"}, s.got); diff != "" {
			t.Errorf("written (-want +got):\n%s", diff)
		}
	})
}

func TestAFailureIsToldOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &tap{open: make(chan struct{}), err: errors.New("no reader")}
		w := writequeue.New(s, writequeue.Bounds{Pieces: 1, Bytes: 9})
		for range 3 {
			w.Post([]byte("x"))
		}
		close(s.open)
		synctest.Wait()
		w.Post([]byte("y"))
		w.Send([]byte("z"))
		<-w.Close()
		if len(s.told) != 1 || len(s.got) != 0 {
			t.Errorf("told %v, written %v", s.told, s.got)
		}
	})
}
