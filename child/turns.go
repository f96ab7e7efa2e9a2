package child

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"nexus.internal/child/foreign"
	"nexus.internal/child/provider"
	"nexus.internal/child/turn"
	"nexus.internal/protocol"
	"nexus.internal/protocol/textcut"
	"nexus.internal/protocol/tracing"
	"nexus.internal/protocol/transcript"
)

// A prompt goes down this file: the reader checks and accepts it, the worker takes its
// job, makes the turn of the attachments, the prompt and the tools of the moment, runs
// it, saves how it ended, and writes the frames that close it.

// prompt accepts a prompt. One that cannot be accepted is only an error: it gets no
// agent_end and no response.
func (s *server) prompt(c protocol.Prompt) {
	err := checkPrompt(c)
	if err == nil {
		err = s.queue.accept(c)
	}
	if err != nil {
		s.out.post(commandError(c.ID, err))
	}
}

// checkPrompt reports what is wrong with a prompt whatever else goes on.
func checkPrompt(p protocol.Prompt) error {
	for _, one := range []struct{ member, value string }{{"source", p.Source}, {"source_agent_id", p.SourceAgentID}} {
		if one.value == "" {
			continue
		}
		if err := protocol.CheckSource(one.value); err != nil {
			return fmt.Errorf("prompt: member %q: %w", one.member, err)
		}
	}
	for _, a := range p.Attachments {
		if err := a.Check(); err != nil {
			return err
		}
	}
	return nil
}

func (s *server) followUp(c protocol.FollowUp) {
	if err := s.queue.accept(c); err != nil {
		s.out.post(commandError(c.ID, err))
	}
}

// worker runs the jobs of a child, one at a time, on one goroutine.
type worker struct {
	*session
	out   *emitter
	queue *turnQueue
	relay *relay
	files agentFiles

	lastSystem madeSystem // of runJobs alone
}

// runJobs runs jobs until there will be no more.
func (w *worker) runJobs() {
	for j := w.queue.next(); j != nil; j = w.queue.next() {
		w.out.sendAll(w.run(j), func() (aborts []protocol.Event) {
			for _, a := range w.queue.finish(j) {
				aborts = append(aborts, protocol.SuccessResponse(a, protocol.TurnDone{}))
			}
			return aborts
		})
	}
}

// run carries out one job and returns the events that close it, of which its response is the
// last.
func (w *worker) run(j *job) []protocol.Event {
	switch c := j.command.(type) {
	case protocol.Prompt:
		ctx := j.ctx
		if parent, ok := tracing.Parse(c.Traceparent); ok {
			ctx = tracing.With(ctx, parent)
		}
		return w.runTurn(ctx, c, turn.Input{
			ID: c.ID, Message: c.Message, Attachments: c.Attachments, Source: c.Source, SourceAgentID: c.SourceAgentID,
		})
	case protocol.FollowUp:
		return w.runTurn(j.ctx, c, turn.Input{ID: c.ID, Message: c.Message})
	case protocol.Compact:
		return []protocol.Event{w.compact(j.ctx, c)}
	default:
		panic("child: no job: " + c.Name())
	}
}

// runTurn runs a turn, saves how it ended, and returns the events that close it.
func (w *worker) runTurn(ctx context.Context, c protocol.Answered[protocol.TurnDone], in turn.Input) (closing []protocol.Event) {
	result := w.takeTurn(ctx, in)
	if errors.Is(result.Err, foreign.ErrEnded) { // Serve ends, as by a crash: whoever reads the journal finds a turn that was cut off
		_ = w.Journal.Sync()
		return nil
	}
	end := transcript.TurnEnd{
		TurnID: in.ID, Outcome: transcript.Outcome(result.Stop), Usage: result.Usage, At: time.Now().UTC(),
	}
	if result.Err != nil {
		no := refusal(result.Err)
		end.Error, end.Reason = no.Error, no.Reason
		if end.LeftOut = refused(result.Err); end.LeftOut {
			w.conversation.LeaveOut()
		}
	}
	err := w.Journal.Append(end)
	if err == nil {
		err = w.Journal.Sync()
	}
	if err != nil && result.Err == nil {
		result.Stop, result.Err = protocol.StopError, err
	}
	w.countTurn(result.Stop, end.At)

	w.relay.flush()
	if result.Err != nil {
		w.Log.Warn("turn failed", zap.String("turn", textcut.Head(in.ID, 64)), zap.String("error", provider.Brief(result.Err)))
		closing = append(closing, commandError(in.ID, result.Err))
	}
	w.sendUpdate(func(e protocol.Event) { closing = append(closing, e) })
	closing = append(closing, protocol.AgentEnd{Usage: result.Usage, StopReason: result.Stop, TurnID: in.ID})
	if result.Err != nil {
		return append(closing, failure(c, result.Err))
	}
	return append(closing, protocol.SuccessResponse(c, protocol.TurnDone{Cancelled: result.Stop == protocol.StopAborted}))
}

// refused reports whether a turn failed as the model's service does not want what it asks. Requests
// with its messages would be refused, too.
func refused(err error) bool {
	e, ok := errors.AsType[*provider.Error](err)
	return ok && e.Refused || errors.Is(err, turn.ErrHeldBack)
}

// takeTurn runs the turn itself, unless it cannot be saved or its attachments
// cannot be read.
func (w *worker) takeTurn(ctx context.Context, in turn.Input) turn.Result {
	err := w.Journal.Writable()
	if err == nil {
		in.Message, in.Images, err = w.files.attach(in.Message, in.Attachments)
		in.Attachments = described(in.Attachments)
	}
	if err != nil {
		return turn.Result{Stop: protocol.StopError, Err: err}
	}
	if notices := w.ToolEnv.Notices(); notices != "" {
		in.Message += "\n\n" + notices
	}
	if w.Foreign != nil {
		return w.takeForeignTurn(ctx, in)
	}
	now := w.current()
	model, turns := now.model, now.turns
	name := model.name()
	w.Servers.Prepare(ctx)
	system, tools := w.system(), w.ToolEnv.Tools()
	if model.NoTools {
		tools = nil
	}
	w.conversation.SetModel(name, model.ContextWindow)
	w.conversation.SetMaxMessages(int(*turns.MaxMessages))
	w.conversation.SetSystem(system)
	w.conversation.SetTools(tools.Specs())
	runner := turn.Runner{
		Compactor: w.compactor(model), System: system, Tools: tools,
		MaxIterations: int(*turns.MaxIterations), CompactAt: int(*turns.CompactAt), Images: w.Images, Listener: w,
		Parameters: parameters(model, turns),
	}
	fallback := w.fallback(model, protocol.Value(turns.FallbackModel))
	if fallback != nil {
		runner.Provider = fallback
	}
	in.At = time.Now().UTC()
	w.ToolEnv.Changes().BeginTurn(in.At)
	result := runner.Run(ctx, in)
	var second protocol.TurnUsage
	if fallback != nil {
		second = fallback.Used()
		second.Cost = w.cost(fallback.Name, second)
		w.addUsage(fallback.Name, second)
		result.Usage = result.Usage.Without(second)
	}
	result.Usage.Cost = w.cost(name, result.Usage)
	w.addUsage(name, result.Usage)
	result.Usage.Add(second)
	if result.Usage.Model == nil {
		result.Usage.Model = &model.Model
	}
	return result
}

// parameters are those of requests to a model; nil if all is as its service does.
func parameters(model Selected, turns protocol.TurnSettings) *provider.Parameters {
	p := provider.Parameters{MaxOutput: int(protocol.Value(turns.MaxOutputTokens))}
	if p.MaxOutput > 0 && model.MaxOutput > 0 {
		p.MaxOutput = min(p.MaxOutput, int(model.MaxOutput))
	}
	if protocol.ValueOr(turns.Temperature, -1) >= 0 {
		p.Temperature = turns.Temperature
	}
	if !model.NoReasoning {
		p.Effort = protocol.Value(turns.ReasoningEffort)
	}
	if p == (provider.Parameters{}) {
		return nil
	}
	return &p
}

// fallback is what asks the model of that name where the service of another one is down; nil
// if there is none.
func (w *worker) fallback(model Selected, name string) *provider.Fallback {
	if name == "" {
		return nil
	}
	second, err := w.Models.Select(name, model.ProviderName)
	if err != nil {
		w.Log.Warn("there is no such fallback model", zap.String("error", provider.Brief(err)))
		return nil
	}
	if second.name() == model.name() {
		return nil
	}
	return &provider.Fallback{Provider: model.Provider, Second: second.Provider, Model: second.Model, Name: second.name()}
}

// cost is what a model used, in US dollars; nil if its price is not known, or 0.
func (w *worker) cost(model string, used protocol.TurnUsage) *float64 {
	price, ok := w.Models.Price(model)
	if !ok || price.Input+price.Output == 0 {
		return nil
	}
	return new(price.Cost(used))
}

func (w *worker) Compacted() { w.sendUpdate(w.out.send) }

// Emit implements [turn.Listener]. The result of a call comes after all that the call
// asked and told the parent.
func (w *worker) Emit(e protocol.AssistantEvent) {
	switch e.(type) {
	case protocol.ToolcallResult:
		w.relay.flush()
	case protocol.ToolcallOutputDelta:
		if !w.ToolEnv.Tools().Output() {
			return
		}
	case protocol.Retry, protocol.Fallback, protocol.CompactionStart, protocol.CompactionEnd, protocol.ContextGiven, protocol.Foreign:
		if !w.SessionUpdates {
			return
		}
	}
	w.out.update(e)
}
