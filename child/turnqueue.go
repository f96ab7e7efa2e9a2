package child

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"

	"nexus.internal/child/provider"
	"nexus.internal/child/turn"
	"nexus.internal/protocol"
	"nexus.internal/protocol/textcut"
	"nexus.internal/protocol/tracing"
	"nexus.internal/protocol/transcript"
)

const (
	// maxQueue is how many follow-ups may wait; a further one is refused.
	maxQueue = 16
	// maxAborts is how many aborts of one turn are answered after it; a
	// further one is refused.
	maxAborts = 64
)

// errAborted is the cause of a turn's end by abort.
var errAborted = errors.New("aborted")

// job is what the worker runs: a turn or a compaction.
type job struct {
	command protocol.Command
	ctx     context.Context
	cancel  context.CancelCauseFunc
	aborts  []protocol.Abort // answered after the job; guarded by server.mu
}

// accept queues a command for the worker, or says why not.
func (s *server) accept(c protocol.Command) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errShutdown
	}
	if s.active != nil {
		if err := s.canQueue(c); err != nil {
			return err
		}
	}
	j := &job{command: c}
	j.ctx, j.cancel = context.WithCancelCause(s.ctx)
	if s.active != nil {
		s.queue = append(s.queue, j)
		return nil
	}
	s.active = j
	s.signal()
	return nil
}

// canQueue says why a command may not wait behind what runs. s.mu is held.
func (s *server) canQueue(c protocol.Command) error {
	busy := append([]*job{s.active}, s.queue...)
	if i := slices.IndexFunc(busy, func(j *job) bool { return j.command.Ident() == c.Ident() }); i >= 0 {
		return fmt.Errorf("id %q belongs to a %s in flight", textcut.Head(c.Ident(), 64), busy[i].command.Name())
	}
	switch c.(type) {
	case protocol.FollowUp:
		if len(s.queue) >= maxQueue {
			return fmt.Errorf("%d follow-ups wait already", maxQueue)
		}
		return nil
	case protocol.Prompt:
		// What compacts is no prompt: the first that comes waits for it.
		if _, compacting := s.active.command.(protocol.Compact); compacting && len(s.queue) == 0 {
			return nil
		}
		return errors.New("another prompt is in flight; wait for its response, abort it, or send a follow_up")
	default:
		return fmt.Errorf("%s is refused while a turn runs", c.Name())
	}
}

// runJobs runs jobs one at a time until there will be no more.
func (s *server) runJobs() {
	for range s.wake {
		for {
			s.mu.Lock()
			j, closed := s.active, s.closed
			s.mu.Unlock()
			if j == nil && closed {
				return
			}
			if j == nil {
				break
			}
			response := s.run(j)
			aborts := s.finish(j)
			s.out.send(response)
			for _, a := range aborts {
				s.out.send(protocol.SuccessResponse(a, protocol.TurnDone{}))
			}
		}
	}
}

// finish makes room for the next job. It comes before the response is written:
// who has read the response may send a prompt at once.
func (s *server) finish(j *job) []protocol.Abort {
	j.cancel(nil)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.active = nil
	if len(s.queue) > 0 {
		s.active = s.queue[0]
		s.queue = slices.Delete(s.queue, 0, 1)
	}
	return j.aborts
}

// abort ends the running job; its answer follows that of the job, or is that of
// the job if both bear one id: an id gets one response. When idle it is answered
// at once.
func (s *server) abort(c protocol.Abort) {
	s.mu.Lock()
	j := s.active
	if j == nil {
		s.mu.Unlock()
		s.out.post(protocol.SuccessResponse(c, protocol.TurnDone{}))
		return
	}
	if c.ID == j.command.Ident() {
		s.mu.Unlock()
		j.cancel(errAborted)
		return
	}
	if len(j.aborts) >= maxAborts {
		s.mu.Unlock()
		s.out.post(refusal(c.ID, fmt.Sprintf("%d aborts wait for this turn already", maxAborts)))
		return
	}
	j.aborts = append(j.aborts, c)
	s.mu.Unlock()
	j.cancel(errAborted)
}

// run carries out one job and returns its response.
func (s *server) run(j *job) protocol.Response {
	switch c := j.command.(type) {
	case protocol.Prompt:
		if parent, ok := tracing.Parse(c.Traceparent); ok {
			j.ctx = tracing.With(j.ctx, parent)
		}
		return s.runTurn(j.ctx, c, turn.Input{
			ID: c.ID, Message: c.Message, Attachments: c.Attachments, Source: c.Source, SourceAgentID: c.SourceAgentID,
		})
	case protocol.FollowUp:
		return s.runTurn(j.ctx, c, turn.Input{ID: c.ID, Message: c.Message})
	case protocol.Compact:
		return s.compact(j.ctx, c)
	default:
		panic("child: no job: " + c.Name())
	}
}

func (s *server) runTurn(ctx context.Context, c protocol.Answered[protocol.TurnDone], in turn.Input) protocol.Response {
	result := s.takeTurn(ctx, in)
	end := transcript.TurnEnd{
		TurnID: in.ID, Outcome: transcript.Outcome(result.Stop), Usage: result.Usage, At: time.Now().UTC(),
	}
	if result.Err != nil {
		end.Error = textcut.Head(result.Err.Error(), maxErrorText)
	}
	err := s.Journal.Append(end)
	if err == nil {
		err = s.Journal.Sync()
	}
	if err != nil && result.Err == nil {
		result.Stop, result.Err = protocol.StopError, err
	}
	s.mu.Lock()
	s.turns++
	s.halted = result.Stop == protocol.StopMaxIterations
	s.lastAt = end.At
	s.mu.Unlock()

	s.settle()
	if result.Err != nil {
		s.log.Warn("turn failed", zap.String("turn", textcut.Head(in.ID, 64)), zap.String("error", provider.Brief(result.Err)))
		s.out.send(refusal(in.ID, result.Err.Error()))
	}
	s.sendUpdate(s.out.send)
	s.out.send(protocol.AgentEnd{Usage: result.Usage, StopReason: result.Stop, TurnID: in.ID})
	if result.Err != nil {
		return protocol.FailureResponse(c.Ident(), c.Name(), refusalOf(result.Err))
	}
	return protocol.SuccessResponse(c, protocol.TurnDone{Cancelled: result.Stop == protocol.StopAborted})
}

// takeTurn runs the turn itself, unless it cannot be saved or its attachments
// cannot be read.
func (s *server) takeTurn(ctx context.Context, in turn.Input) turn.Result {
	fail := func(err error) turn.Result { return turn.Result{Stop: protocol.StopError, Err: err} }
	if err := s.Journal.Writable(); err != nil {
		return fail(err)
	}
	message, images, err := s.attach(ctx, in.Message, in.Attachments)
	if err != nil {
		return fail(err)
	}
	in.Message, in.Images = message, images
	s.mu.Lock()
	model := s.model
	s.mu.Unlock()
	if s.Servers != nil {
		s.Servers.Prepare(ctx)
	}
	system, tools := s.system(ctx), s.registry()
	s.conversation.SetModel(model.name(), model.ContextWindow)
	s.conversation.SetSystem(system)
	s.conversation.SetTools(tools.Specs())
	runner := turn.Runner{
		Compactor: s.compactor(model), System: system, Tools: tools, ToolOutput: s.ToolOutput,
		MaxIterations: s.MaxIterations, CompactAt: max(s.CompactAt, 0), Compacted: func() { s.sendUpdate(s.out.send) },
		Image: s.Images.Get, Emit: s.emit,
	}
	result := runner.Run(ctx, in)
	s.mu.Lock()
	s.count(model.name(), result.Usage)
	s.mu.Unlock()
	name := model.Model
	if result.Usage.Model == nil {
		result.Usage.Model = &name
	}
	return result
}

// emit passes on one step of a turn. A call's result comes after all that was
// asked and told for its sake.
func (s *server) emit(e protocol.AssistantEvent) {
	if _, ok := e.(protocol.ToolcallResult); ok {
		s.settle()
	}
	s.out.update(e)
}
