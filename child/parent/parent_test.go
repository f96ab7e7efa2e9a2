package parent_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"go.uber.org/goleak"

	"nexus.internal/child/parent"
	"nexus.internal/protocol"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := parent.New(parent.Options{HostCalls: true})
		type reply struct {
			result jsontext.Value
			err    error
		}
		replies := make(chan reply, 1)
		ask := func(ctx context.Context) protocol.HostCall {
			go func() {
				result, err := p.Call(ctx, "t1", "send", jsontext.Value(`{"agent_id":"b"}`))
				replies <- reply{result, err}
			}()
			return (<-p.Events()).(protocol.HostCall)
		}
		call := ask(t.Context())
		if call.TurnID != "t1" || call.Method != "send" || string(call.Params) != `{"agent_id":"b"}` {
			t.Errorf("asked %+v", call)
		}
		if err := p.Answer(protocol.HostResult{CallID: call.CallID, Result: jsontext.Value(`{"ok":1}`)}); err != nil {
			t.Fatal(err)
		}
		if got := <-replies; string(got.result) != `{"ok":1}` || got.err != nil {
			t.Errorf("got %s, %v", got.result, got.err)
		}
		call = ask(t.Context())
		if err := p.Answer(protocol.HostResult{CallID: call.CallID, Error: &protocol.HostError{Code: -32602, Message: "no agent b"}}); err != nil {
			t.Fatal(err)
		}
		got := <-replies
		if host, ok := errors.AsType[*parent.HostError](got.err); !ok || host.Code != -32602 || host.Error() != "no agent b" {
			t.Errorf("got %v", got.err)
		}
		ctx, abort := context.WithCancel(t.Context())
		call = ask(ctx)
		abort()
		if got := <-replies; !errors.Is(got.err, context.Canceled) {
			t.Errorf("got %v", got.err)
		}
		if end := <-p.Events(); end != (protocol.HostCancel{CallID: call.CallID}) {
			t.Errorf("got %#v", end)
		}
		if err := p.Answer(protocol.HostResult{CallID: call.CallID, Result: jsontext.Value(`{}`)}); !errors.Is(err, parent.ErrUnknown) {
			t.Errorf("an answer that comes too late: %v", err)
		}
	})
}

func TestNoHost(t *testing.T) {
	if _, err := parent.New(parent.Options{}).Call(t.Context(), "", "send", nil); !errors.Is(err, parent.ErrNoHost) {
		t.Errorf("got %v", err)
	}
}

// The deadline that is told is the one that is kept, and no earlier second.
func TestDeadlineIsExact(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		<-time.NewTimer(123456789 * time.Nanosecond).C
		p := parent.New(parent.Options{Approvals: parent.Ask, Deadline: time.Second})
		done := make(chan struct{})
		go func() {
			defer close(done)
			if r, err := p.Permission(t.Context(), protocol.PermissionRequest{}); err != nil || r.Decision != protocol.Deny {
				t.Errorf("got %+v, %v", r, err)
			}
		}()
		told := (<-p.Events()).(protocol.PermissionRequest).Deadline
		<-p.Events() // its end
		if now := time.Now().UTC().Format(time.RFC3339Nano); told != now || !strings.Contains(now, ".123456789Z") {
			t.Errorf("it ended at %s, and was told to at %s", now, told)
		}
		<-done
	})
}

func TestAnswersThatAreNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := parent.New(parent.Options{Approvals: parent.Ask, HostCalls: true, Deadline: time.Second})
		done := make(chan struct{})
		go func() {
			defer close(done)
			if _, err := p.Permission(t.Context(), protocol.PermissionRequest{Decisions: []protocol.Decision{protocol.AllowOnce, protocol.Deny}}); err != nil {
				t.Error(err)
			}
		}()
		id := (<-p.Events()).(protocol.PermissionRequest).RequestID
		answered := fmt.Sprintf(`permission_response to %q: no such question waits for an answer`, id)
		for _, tt := range []struct {
			answer protocol.Command
			want   string
		}{
			{protocol.PermissionResponse{RequestID: "p2", Decision: protocol.Deny}, `permission_response to "p2": no such question waits for an answer`},
			{protocol.PermissionResponse{RequestID: "h1", Decision: protocol.Deny}, `permission_response to "h1": no such question waits for an answer`},
			{protocol.PermissionResponse{Decision: protocol.Deny}, `permission_response to "": no such question waits for an answer`},
			{protocol.PermissionResponse{RequestID: id, Decision: "yes"}, `decision "yes" is not known, want allow_once, allow_session or deny`},
			{protocol.PermissionResponse{RequestID: id, Decision: protocol.AllowSession}, `decision "allow_session" was not offered, want one of [allow_once deny]`},
			{protocol.HostResult{CallID: id, Result: jsontext.Value(`1`)}, fmt.Sprintf(`host_result to %q: no such question waits for an answer`, id)},
			{protocol.HostResult{CallID: "h1"}, "a host_result has either a result or an error"},
			{protocol.PermissionResponse{RequestID: id, Decision: protocol.AllowOnce}, "<nil>"},
			{protocol.PermissionResponse{RequestID: id, Decision: protocol.Deny}, answered},
		} {
			if got := fmt.Sprint(p.Answer(tt.answer)); got != tt.want {
				t.Errorf("%+v: %s, want %s", tt.answer, got, tt.want)
			}
		}
		<-done
	})
}

// An answer that was meant for the agent's process before must not be one for
// this: with the same ids, a late yes would allow something else.
func TestAnswerToAnotherProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ask := func() (*parent.Client, protocol.PermissionRequest) {
			p := parent.New(parent.Options{Approvals: parent.Ask, Deadline: time.Second})
			go func() {
				if r, err := p.Permission(t.Context(), protocol.PermissionRequest{}); err != nil || r.Decision != protocol.Deny {
					t.Errorf("answered %+v, %v", r, err)
				}
			}()
			return p, (<-p.Events()).(protocol.PermissionRequest)
		}
		_, before := ask()
		now, _ := ask()
		err := now.Answer(protocol.PermissionResponse{RequestID: before.RequestID, Decision: protocol.AllowOnce})
		if !errors.Is(err, parent.ErrUnknown) {
			t.Errorf("got %v", err)
		}
		time.Sleep(time.Second) // in the bubble's time
		synctest.Wait()
	})
}

// However many ask, a bounded number waits; and an abort is through at once
// though nobody reads what is told.
func TestTooManyQuestions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := parent.New(parent.Options{Approvals: parent.Ask, HostCalls: true})
		errs := make(chan error, 3*parent.MaxOpen)
		began := time.Now()
		for range 2 { // the first leave 128 events unread
			ctx, abort := context.WithCancel(t.Context())
			for range parent.MaxOpen {
				go func() {
					_, err := p.Permission(ctx, protocol.PermissionRequest{})
					errs <- err
				}()
			}
			synctest.Wait()
			if _, err := p.Call(ctx, "", "send", nil); !errors.Is(err, parent.ErrBusy) {
				t.Errorf("the 65th: %v", err)
			}
			abort()
			for range parent.MaxOpen {
				if err := <-errs; !errors.Is(err, context.Canceled) {
					t.Errorf("got %v", err)
				}
			}
		}
		if took := time.Since(began); took > 0 {
			t.Errorf("took %v", took)
		}
	})
}
