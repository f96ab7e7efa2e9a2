package tool

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"go.uber.org/zap"

	"nexus.internal/protocol"
	"nexus.internal/protocol/textcut"
)

// This file is the way of a call: Run takes the calls of an answer in order and shares reads
// next to each other among workers; each worker checks the input, asks the guard, runs the
// tool within its time, and makes an outcome of what came of it.

const (
	// grace is how long a tool has to return once its turn is aborted, which must be
	// through within 100 ms (SPEC §3.4).
	grace = 50 * time.Millisecond

	// lateGrace is how long it has once its own time is over, to end what it runs and
	// to return what that had put out.
	lateGrace = 5 * time.Second
)

// Outcome is what became of one call. Its Text is the result, or why there is none, in
// valid UTF-8.
type Outcome struct {
	Call protocol.ToolCall
	Result
}

// Watcher gets the progress of calls, on the goroutine of Run.
type Watcher interface {
	// Output is a piece of what a running call puts out, where Options.Output asks for
	// it. The call waits for it.
	Output(call protocol.ToolCall, text string)
	// Done is how a call ended.
	Done(o Outcome)
}

// output is a piece of what a call puts out.
type output struct {
	call protocol.ToolCall
	text string
}

// progress implements [Progress] for one call.
type progress struct {
	ctx     context.Context //nolint:containedctx // of the call
	call    protocol.ToolCall
	outputs chan<- output
	wanted  *atomic.Bool
}

func (p progress) Wanted() bool { return p.wanted.Load() }

func (p progress) Report(text string) {
	select {
	case p.outputs <- output{p.call, text}:
	case <-p.ctx.Done():
	}
}

// Run carries out the calls of one answer in a turn, in their order, and returns their
// outcomes in that order. Only reads next to each other run at once, at most Parallel of them:
// each other call finds what the calls before it did, and nothing of those after it. A failed
// call does not keep the next from running. Everything that can go wrong is an
// outcome: an unknown tool, a bad input, a refusal, a timeout, a panic. When ctx ends,
// calls that have not begun are not begun and Run returns within 100 ms. A nil w is
// not told.
func (r *Registry) Run(ctx context.Context, turnID string, calls []protocol.ToolCall, w Watcher) []Outcome {
	outcomes := make([]Outcome, 0, len(calls))
	for len(calls) > 0 {
		reads := 0
		for reads < len(calls) && r.reads(calls[reads]) {
			reads++
		}
		n := max(reads, 1)
		outcomes = append(outcomes, r.runAtOnce(ctx, turnID, calls[:n], w)...)
		calls = calls[n:]
	}
	return outcomes
}

// reads reports whether a call only reads files.
func (r *Registry) reads(c protocol.ToolCall) bool {
	t, ok := r.tools[c.Name].(Scoped)
	if !ok {
		return false
	}
	scope, err := t.Scope(c.Input)
	return err == nil && scope.Action == protocol.ActionRead
}

// runAtOnce is Run for calls that need not be in order.
func (r *Registry) runAtOnce(ctx context.Context, turnID string, calls []protocol.ToolCall, w Watcher) []Outcome {
	type finished struct {
		index   int
		outcome Outcome
	}
	outputs := make(chan output) // a call waits until its output is passed on, or until it ends
	next := make(chan int, len(calls))
	for i := range calls {
		next <- i
	}
	close(next)
	if len(calls) > 1 {
		defer r.options.Processors.widen()()
	}
	done := make(chan finished, len(calls)) // one place for each call: workers never wait
	var workers sync.WaitGroup
	for range min(r.options.Parallel, len(calls)) {
		workers.Go(func() {
			for i := range next {
				ctx, end := context.WithCancel(ctx)
				c := Call{ID: calls[i].ID, Name: calls[i].Name, Input: calls[i].Input, TurnID: turnID}
				if w != nil {
					c.Progress = progress{ctx, calls[i], outputs, &r.output}
				}
				done <- finished{i, Outcome{calls[i], r.call(ctx, c)}}
				end()
			}
		})
	}
	outcomes := make([]Outcome, len(calls))
	for left := len(calls); left > 0; {
		select {
		case o := <-outputs:
			w.Output(o.call, o.text)
		case f := <-done:
			left--
			outcomes[f.index] = f.outcome
			if w != nil {
				w.Done(f.outcome)
			}
		}
	}
	workers.Wait()
	return outcomes
}

// call carries out one call within its limits.
func (r *Registry) call(ctx context.Context, call Call) Result {
	fail := func(format string, a ...any) Result {
		return Result{Text: r.limit(call.Name, fmt.Sprintf(format, a...)), IsError: true}
	}
	t, known := r.tools[call.Name]
	switch {
	case call.Name == "":
		return fail("the model called a tool without a name")
	case ctx.Err() != nil:
		return fail("%s was not run: the turn was aborted", call.Name)
	case !known:
		return fail("there is no tool %q", call.Name)
	case r.stuck.Load() >= maxStuck:
		return fail("%s was not run: %d earlier calls hang", call.Name, maxStuck)
	}
	// The tool's name goes before what it says, unless it names itself.
	failed := func(err error) Result {
		text := err.Error()
		if rest, ok := strings.CutPrefix(text, call.Name); !ok || rest == "" || (rest[0] != ':' && rest[0] != ' ') {
			text = call.Name + ": " + text
		}
		return fail("%s", text)
	}
	var err error
	if call.Input, err = object(call.Input); err != nil {
		return failed(err)
	}
	if r.options.Guard != nil {
		call.Permit, err = r.options.Guard.Authorize(ctx, t, call)
		switch {
		case err != nil && ctx.Err() != nil:
			return fail("%s was not run: the turn was aborted", call.Name)
		case err != nil:
			return failed(err)
		}
	}
	result, err := r.invoke(ctx, t, call)
	if err != nil {
		result = failed(err)
	} else {
		result.Text = r.limit(call.Name, result.Text)
	}
	if r.options.Notices != nil {
		if notices := r.options.Notices.Notices(); notices != "" {
			result.Text = strings.TrimSuffix(result.Text, "\n") + "\n" + notices
		}
	}
	return result
}

// invoke runs the tool in a goroutine of its own and waits for it until lateGrace
// after the end of its time, or grace after that of its turn.
func (r *Registry) invoke(parent context.Context, t Tool, call Call) (Result, error) {
	limit := r.timeLimit(t, call)
	ctx, cancel := context.WithTimeout(parent, limit)
	defer cancel()
	type answer struct {
		result Result
		err    error
	}
	call.Kept = &Kept{}
	answers := make(chan answer, 1)
	var returned atomic.Bool // the second to swap it, the tool or its waiter, finds it true
	r.running.Go(func() {
		result, err := r.runRecovered(ctx, t, call)
		answers <- answer{result, err}
		if returned.Swap(true) {
			r.stuck.Add(-1)
		}
	})
	select {
	case a := <-answers:
		return a.result, reason(parent, ctx, limit, a.err)
	case <-ctx.Done():
	}
	late := time.NewTimer(lateGrace)
	defer late.Stop()
	select {
	case a := <-answers:
		return a.result, reason(parent, ctx, limit, a.err)
	case <-late.C:
	case <-parent.Done():
		timer := time.NewTimer(grace)
		defer timer.Stop()
		select {
		case a := <-answers:
			return a.result, reason(parent, ctx, limit, a.err)
		case <-timer.C:
		}
	}
	r.stuck.Add(1)
	if returned.Swap(true) { // it returned at this very moment
		r.stuck.Add(-1)
		a := <-answers
		return a.result, reason(parent, ctx, limit, a.err)
	}
	r.options.Log.Warn("tool does not return", zap.String("tool", call.Name), zap.Int64("stuck", r.stuck.Load()))
	return call.Kept.result(reason(parent, ctx, limit, ctx.Err()))
}

// reason puts the end of a context into words that a model can use.
func reason(parent, ctx context.Context, limit time.Duration, err error) error {
	switch {
	case err == nil:
		return nil
	case parent.Err() != nil:
		return errors.New("the turn was aborted")
	case ctx.Err() != nil && errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("not done after %v", limit)
	default:
		return err
	}
}

// runRecovered runs the tool and turns a panic of it into an error.
func (r *Registry) runRecovered(ctx context.Context, t Tool, call Call) (result Result, err error) {
	defer func() {
		if p := recover(); p != nil {
			r.options.Log.Error("tool panicked", zap.String("tool", call.Name), zap.Any("panic", p),
				zap.ByteString("stack", debug.Stack()))
			err = fmt.Errorf("the tool panicked: %v", p)
		}
	}()
	return t.Run(ctx, call)
}

// object checks that a call's input is a JSON object. Some models send nothing
// where there is nothing to say.
func object(input jsontext.Value) (jsontext.Value, error) {
	if len(input) == 0 || input.Kind() == 'n' {
		return jsontext.Value("{}"), nil
	}
	if !input.IsValid() || input.Kind() != '{' {
		return nil, errors.New("the input is not a JSON object")
	}
	return input, nil
}

// limit cuts a text that is too long at a character boundary, and says how much
// is missing and where it is. What is not UTF-8 in it becomes U+FFFD.
func (r *Registry) limit(tool, text string) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	most := r.options.MaxOutput
	if len(text) <= most {
		return text
	}
	head := textcut.Head(text, most)
	note := ""
	if r.options.Spill != nil {
		path, err := r.options.Spill.Save(tool, text)
		if err != nil {
			r.options.Log.Warn("cannot keep a result that is too long", zap.String("tool", tool), zap.Error(err))
		} else {
			note = "; the whole is in " + path
		}
	}
	return fmt.Sprintf("%s\n[cut off here: %d of %d bytes are missing%s]", head, len(text)-len(head), len(text), note)
}
