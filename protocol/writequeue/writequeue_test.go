package writequeue_test

import (
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
	open chan struct{}
	got  []string
	err  error
}

func (s *tap) write(piece []byte) error {
	<-s.open
	if s.err != nil {
		return s.err
	}
	s.got = append(s.got, string(piece))
	return nil
}

func lost(n int) []byte { return fmt.Appendf(nil, "lost %d", n) }

func TestPostNeverWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &tap{open: make(chan struct{})}
		w := writequeue.New(writequeue.Options{Write: s.write, MaxPieces: 3, MaxBytes: 8, Lost: lost})
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
		w := writequeue.New(writequeue.Options{Write: s.write, MaxPieces: 9, MaxBytes: 99})
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
		s := &tap{open: make(chan struct{}, 9)}
		room := true
		w := writequeue.New(writequeue.Options{Write: s.write, Ready: func(int) bool { return room }, MaxPieces: 9, MaxBytes: 99})
		s.open <- struct{}{}
		w.Post([]byte("1"))
		if len(s.got) != 1 {
			t.Fatal("not written at once")
		}
		room = false
		w.Post([]byte("2"))
		synctest.Wait()
		room = true
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
		var told []error
		w := writequeue.New(writequeue.Options{Write: s.write, MaxPieces: 1, MaxBytes: 9, Lost: lost, Failed: func(err error) { told = append(told, err) }})
		for range 3 {
			w.Post([]byte("x"))
		}
		close(s.open)
		synctest.Wait()
		w.Post([]byte("y"))
		w.Send([]byte("z"))
		<-w.Close()
		if len(told) != 1 || len(s.got) != 0 {
			t.Errorf("told %v, written %v", told, s.got)
		}
	})
}
