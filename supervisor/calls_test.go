package supervisor_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"nexus.internal/protocol"
	"nexus.internal/supervisor"
	"nexus.internal/supervisor/supervisortest"
)

// reader is a child that keeps its answers to get_messages back.
type reader struct {
	child *supervisortest.Child // the latest that was asked
	owes  []protocol.GetMessages
	most  int
}

func (r *reader) play(c *supervisortest.Child, command protocol.Command) bool {
	asked, ok := command.(protocol.GetMessages)
	if ok {
		r.child, r.owes = c, append(r.owes, asked)
		r.most = max(r.most, len(r.owes))
	}
	return ok
}

// answer answers the oldest.
func (r *reader) answer() {
	synctest.Wait()
	asked := r.owes[0]
	r.owes = r.owes[1:]
	r.child.Emit(protocol.SuccessResponse(asked, protocol.MessagesPage{Messages: jsontext.Value("[]"), Offset: *asked.Offset}))
	synctest.Wait()
}

// told is what became of one call.
type told struct {
	n   int
	err error
}

// ask asks for messages n times at once.
func (h *house) ask(ctx context.Context, a *supervisor.Agent, n int) <-chan told {
	all := make(chan told, n)
	for i := range n {
		go func() {
			r, err := supervisor.Do(ctx, a, protocol.GetMessages{Offset: new(uint64(i))})
			if err == nil && r.Offset != uint64(i) {
				err = fmt.Errorf("the answer to another call: %+v", r)
			}
			all <- told{i, err}
		}()
		synctest.Wait() // so that they are asked in order
	}
	return all
}

// A child has room for a few answers of full size that we have not read yet, and
// loses those beyond. So it never owes more, in the order in which they were asked
// for; what takes long or must not wait passes by, and holds up nobody.
func TestOwedAnswersAreBounded(t *testing.T) {
	r := &reader{}
	play := supervisortest.Play{Prompt: supervisortest.UntilAborted, Command: r.play}
	run(t, always(play), func(h *house) {
		a := h.start("alice")
		all := h.ask(h.Context(), a, 40)
		h.passesBy(a)
		for i := range 40 {
			r.answer()
			if got := <-all; got.n != i || got.err != nil {
				h.Fatalf("answered: call %d, %v; want call %d", got.n, got.err, i)
			}
		}
		if r.most != 4 {
			h.Errorf("the child owed %d answers at once, want 4", r.most)
		}
	})
}

func do[R any](ctx context.Context, a *supervisor.Agent, c protocol.Request[R]) error {
	_, err := supervisor.Do(ctx, a, c)
	return err
}

// passesBy does what is not to wait for the answers to others.
func (h *house) passesBy(a *supervisor.Agent) {
	h.Helper()
	ctx, cancel := context.WithTimeout(h.Context(), time.Second)
	defer cancel()
	for name, err := range map[string]error{
		"abort": do(ctx, a, protocol.Abort{}), "ping": do(ctx, a, protocol.Ping{}), "compact": do(ctx, a, protocol.Compact{}),
		"get_available_models": do(ctx, a, protocol.GetAvailableModels{}),
	} {
		if err != nil {
			h.Errorf("%s: %v", name, err)
		}
	}
	turn := h.prompt(a, "1", "x")
	synctest.Wait()
	if cancelled, err := a.Abort(ctx, "1"); !cancelled || err != nil {
		h.Errorf("Abort: %v, %v", cancelled, err)
	}
	h.outcome(turn, supervisor.Cancelled)
}

// Those that have but a share of the requests under way leave some to the owner.
func TestRequestsLeaveRoomToTheOwner(t *testing.T) {
	compacts := func(_ *supervisortest.Child, c protocol.Command) bool { return c.Name() == "compact" } // and never answers
	run(t, always(supervisortest.Play{Command: compacts}), func(h *house) {
		a := h.start("alice")
		ctx, cancel := context.WithTimeout(h.Context(), time.Second)
		defer cancel()
		var got []int
		for _, limited := range []string{"key a", "key b", "key c", ""} {
			refused := make(chan error, 300)
			for range cap(refused) {
				go func() {
					_, err := supervisor.DoLimited(ctx, a, protocol.Compact{}, limited)
					refused <- err
				}()
			}
			synctest.Wait()
			n := len(refused)
			for range n {
				if err := <-refused; !errors.Is(err, supervisor.ErrQueueFull) {
					h.Errorf("%s: %v, want ErrQueueFull", limited, err)
				}
			}
			got = append(got, cap(refused)-n)
		}
		if want := []int{128, 64, 0, 64}; !slices.Equal(got, want) {
			h.Errorf("%v are under way, want %v", got, want)
		}
		synctest.Wait()
		<-ctx.Done()
	})
}

// Who gives up waiting makes no room: the child owes the answer all the same.
func TestOwedAnswersThatNobodyWaitsFor(t *testing.T) {
	r := &reader{}
	run(t, always(supervisortest.Play{Command: r.play}), func(h *house) {
		a := h.start("alice")
		brief, cancel := context.WithTimeout(h.Context(), time.Second)
		defer cancel()
		abandoned := h.ask(brief, a, 6)
		for range 6 {
			if got := <-abandoned; !errors.Is(got.err, context.DeadlineExceeded) {
				h.Errorf("call %d: %v", got.n, got.err)
			}
		}
		all := h.ask(h.Context(), a, 2)
		if len(r.owes) != 4 {
			h.Fatalf("the child owes %d answers, want 4", len(r.owes))
		}
		for range 6 {
			r.answer()
		}
		for range 2 {
			if got := <-all; got.err != nil {
				h.Errorf("call %d: %v", got.n, got.err)
			}
		}
		if r.most != 4 || len(r.owes) != 0 {
			h.Errorf("the child owed %d at most and %d at the end; those that were not sent are not to be", r.most, len(r.owes))
		}
	})
}

// What waits for its turn was not given to the process that ends, and is answered
// by the next one.
func TestOwedAnswersOfACrash(t *testing.T) {
	r := &reader{}
	run(t, always(supervisortest.Play{Command: r.play}), func(h *house) {
		a := h.start("alice")
		all := h.ask(h.Context(), a, 6)
		r.owes = nil
		h.launcher.Child("alice").Crash(supervisor.Exit{Code: 3})
		for range 4 {
			got := <-all
			if _, ok := errors.AsType[*supervisor.CrashError](got.err); !ok || got.n >= 4 {
				h.Errorf("call %d: %v; want that those fail with the process that it was given", got.n, got.err)
			}
		}
		time.Sleep(time.Second) // in the bubble's time: it is there again
		for range 2 {
			r.answer()
			if got := <-all; got.err != nil {
				h.Errorf("call %d: %v", got.n, got.err)
			}
		}
	})
}

// A child that says that it lost answers does not say which: nobody goes on waiting
// for one, and what it was not given is given to it.
func TestLostAnswersAreTold(t *testing.T) {
	const said = "stdout was not read: 3 answers were lost"
	r := &reader{}
	deaf := func(c *supervisortest.Child, command protocol.Command) bool {
		return command.Name() == "compact" || r.play(c, command)
	}
	run(t, always(supervisortest.Play{Prompt: supervisortest.UntilAborted, Command: deaf}), func(h *house) {
		a := h.start("alice")
		turn := h.prompt(a, "1", "x")
		ctx, cancel := context.WithTimeout(h.Context(), time.Minute)
		defer cancel()
		compacted := make(chan error, 1)
		go func() { _, err := supervisor.Do(ctx, a, protocol.Compact{}); compacted <- err }()
		all := h.ask(ctx, a, 6)
		r.owes = nil // the answers are lost
		begin := time.Now()
		h.launcher.Child("alice").Emit(protocol.Error{Message: said})
		want := map[string]string{}
		got := map[string]string{}
		for range 4 {
			call := <-all
			got[fmt.Sprint(call.n)] = fmt.Sprint(call.err)
		}
		for i := range 4 {
			want[fmt.Sprint(i)] = said
		}
		got["compact"], want["compact"] = fmt.Sprint(<-compacted), said
		if diff := cmp.Diff(want, got); diff != "" || since(begin) != 0 {
			h.Fatalf("told after %v (-want +got):\n%s", since(begin), diff)
		}
		for range 2 {
			r.answer()
			if call := <-all; call.err != nil {
				h.Errorf("call %d: %v", call.n, call.err)
			}
		}
		if cancelled, err := a.Abort(h.Context(), "1"); !cancelled || err != nil {
			h.Errorf("Abort: %v, %v", cancelled, err)
		}
		h.outcome(turn, supervisor.Cancelled) // it went on
	})
}

// A command that cannot be written, and that nobody waits for any more when this is found,
// leaves its place to others: four of them made each later command wait for ever.
func TestUnsendableCommandThatNobodyWaitsFor(t *testing.T) {
	slow := func(c *supervisortest.Child, cmd protocol.Command) bool {
		if _, ok := cmd.(protocol.Compact); ok {
			<-time.NewTimer(10 * time.Millisecond).C // nothing is read meanwhile
		}
		return false
	}
	run(t, always(supervisortest.Play{Command: slow}), func(h *house) {
		a := h.start("alice")
		compacted := make(chan error, 70)
		for range cap(compacted) { // more than a pipe has room for: the last ones wait to be written
			go func() { compacted <- do(h.Context(), a, protocol.Compact{}) }()
		}
		synctest.Wait()
		brief, cancel := context.WithTimeout(h.Context(), time.Millisecond)
		defer cancel()
		abandoned := make(chan error, 4)
		for range cap(abandoned) {
			go func() { abandoned <- do(brief, a, protocol.SetCwd{Cwd: "\xff"}) }()
		}
		for range cap(abandoned) {
			if err := <-abandoned; !errors.Is(err, context.DeadlineExceeded) {
				h.Errorf("set_cwd: %v", err)
			}
		}
		for range cap(compacted) {
			if err := <-compacted; err != nil {
				h.Error(err)
			}
		}
		ctx, cancel := context.WithTimeout(h.Context(), time.Minute)
		defer cancel()
		if err := do(ctx, a, protocol.GetState{}); err != nil {
			h.Errorf("get_state: %v", err)
		}
	})
}
