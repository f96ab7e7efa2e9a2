package task

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"

	"nexus.internal/bridge/agents"
	"nexus.internal/bridge/api"
	"nexus.internal/bridge/rpc"
	"nexus.internal/protocol"
	"nexus.internal/protocol/strict"
	"nexus.internal/supervisor"
)

// Runner has agents do tasks. It is safe for concurrent use.
type Runner struct {
	o       Options
	locks   agents.KeyLock // by task that has an agent of its own
	pruning sync.Mutex     // held by prune

	mu      sync.Mutex // guards what follows
	working []*attempt // what is under way
	watches map[*watch]struct{}
	runs    map[string]*run // that have an agent of their own
}

// Options are what a Runner needs, all of it.
type Options struct {
	Agents *agents.Registry
	// Dir is where results are kept of tasks that had an agent of their own, one file for each;
	// one process uses it at a time.
	Dir string
	// Requests is what such tasks are part of: the end of the server waits for them.
	Requests *rpc.DrainGroup
	Log      *zap.Logger
}

// NewRunner returns a Runner that does nothing yet.
func NewRunner(o Options) *Runner {
	return &Runner{o: o, runs: map[string]*run{}, watches: map[*watch]struct{}{}}
}

// abortTimeout is how long a turn of a task that was cancelled may take to end.
const abortTimeout = 10 * time.Second

// attempt is a task that an agent works on.
type attempt struct {
	id, agent string
	worker    *supervisor.Agent // nil until it is made
	after     uint64            // the number of the agent's last event before it
	cancel    context.CancelCauseFunc
	done      chan struct{} // closed at last; cancelled is valid then
	cancelled bool
}

// begin notes that an agent works on a task; nil if it is yet to be made. The context ends with supervisor.ErrAborted when the
// task is cancelled; end must be called, with whether it ended so.
func (r *Runner) begin(ctx context.Context, id string, worker *supervisor.Agent) (working context.Context, end func(cancelled bool)) {
	working, cancel := context.WithCancelCause(ctx)
	a := &attempt{id: id, worker: worker, cancel: cancel, done: make(chan struct{})}
	if worker != nil {
		a.agent, a.after = worker.ID(), worker.LastEvent()
	}
	r.mu.Lock()
	r.working = append(r.working, a)
	for w := range r.watches {
		if w.meant(a) {
			r.tell(w, a)
		}
	}
	r.mu.Unlock()
	return working, func(cancelled bool) {
		cancel(nil)
		r.mu.Lock()
		r.working = slices.DeleteFunc(r.working, func(other *attempt) bool { return other == a })
		r.mu.Unlock()
		a.cancelled = cancelled
		close(a.done)
	}
}

// Cancel cancels the task of that id, in whatever turn it is, and waits for its end. agent is the
// one that works on it; "" is any. It reports whether it ended as cancelled, also before.
func (r *Runner) Cancel(ctx context.Context, agent, id string) (cancelled bool, err error) {
	r.mu.Lock()
	var found []*attempt
	for _, a := range r.working {
		if a.id == id && (agent == "" || a.agent == agent) {
			found = append(found, a)
		}
	}
	r.mu.Unlock()
	for _, a := range found {
		a.cancel(supervisor.ErrAborted)
	}
	for _, a := range found {
		select {
		case <-a.done:
			cancelled = cancelled || a.cancelled
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
	if found == nil && agent == "" {
		return r.wasCancelled(id)
	}
	return cancelled, nil
}

// Run has an agent do a task, in one turn or two. why is the reason of one
// that was cancelled. limited is that of [supervisor.PromptOptions].
func (r *Runner) Run(ctx context.Context, a *supervisor.Agent, p api.ExecuteTaskParams, id, limited string) (result api.ExecuteTaskResult, why, err error) {
	result = api.ExecuteTaskResult{
		Status:   api.TaskCancelled,
		Output:   api.TaskOutput{FilesModified: []string{}, FilesCreated: []string{}},
		Metadata: api.TaskMetadata{AgentID: a.ID(), RequestID: id},
	}
	prompt := Prompt{ID: id, Text: ExecutePrompt(p, id), Timeout: Timeout(p.TimeoutS), Attempts: protocol.Value(p.Attempts), Limited: limited}
	answer, cost, err := Ask(ctx, r, a, prompt, func(reply string) (Answer, error) { return ReadAnswer(reply, id) })
	if err != nil {
		return result, nil, err
	}
	result.Replayed = cost.Replayed
	result.Metadata.ExecutionTimeMS = cost.Elapsed.Milliseconds()
	result.Metadata.TokensUsed = cost.Usage.InputTokens + cost.Usage.OutputTokens
	result.Metadata.Model, result.Metadata.Repaired = protocol.Value(cost.Usage.Model), cost.Repaired
	if cost.Attempts > 1 {
		result.Metadata.Attempts = cost.Attempts
	}
	if u := a.Info().Update; result.Metadata.Model == "" && u != nil {
		result.Metadata.Model = u.Model
	}
	if len(cost.Turns) > 0 {
		result.Output.FilesModified, result.Output.FilesCreated, err = r.filesOf(context.WithoutCancel(ctx), a, cost.Turns)
		if err != nil {
			return result, cost.Cancelled, err
		}
	}
	if cost.Cancelled == nil {
		result.Status, result.Output.Code, result.Output.Explanation = answer.Status, answer.Code, answer.Explanation
	}
	return result, cost.Cancelled, nil
}

// Prompt is what an agent is asked for that is to answer in a declared shape.
type Prompt struct {
	ID      string // of the first turn
	Text    string
	Timeout time.Duration // for all turns together
	// Attempts is how often it is put where the agent crashes or its model cannot be reached; 0
	// is once.
	Attempts int
	// Limited is that of [supervisor.PromptOptions].
	Limited string
}

// cost is what an Prompt took.
type Cost struct {
	Turns     []string // ids
	Usage     protocol.TurnUsage
	Elapsed   time.Duration // without the wait for the agent
	Repaired  bool
	Attempts  int   // that it took
	Replayed  bool  // all of it had ended before
	Cancelled error // why, if it was; then there is no answer
}

// Begin begins the turn of a prompt, whose answer nobody reads.
func (r *Runner) Begin(ctx context.Context, a *supervisor.Agent, e Prompt) (*supervisor.Turn, error) {
	return r.beginTurn(ctx, a, e, supervisor.PromptOptions{})
}

func (r *Runner) beginTurn(ctx context.Context, a *supervisor.Agent, e Prompt, o supervisor.PromptOptions) (*supervisor.Turn, error) {
	o.Timeout, o.Limited = e.Timeout, e.Limited
	turn, err := a.Prompt(ctx, protocol.Prompt{ID: e.ID, Message: e.Text}, o)
	return turn, agents.Destroyed(a.ID(), err)
}

// aborted is why ctx ended, if somebody cancelled the task.
func aborted(ctx context.Context) error {
	if cause := context.Cause(ctx); errors.Is(cause, supervisor.ErrAborted) {
		return cause
	}
	return nil
}

// wait waits for the outcome of a turn, and cancels it if its task is cancelled.
func wait(ctx context.Context, a *supervisor.Agent, turn *supervisor.Turn, id string) (supervisor.Result, error) {
	outcome, err := turn.Wait(ctx)
	if err == nil || aborted(ctx) == nil || ctx.Err() == nil {
		return outcome, err
	}
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), abortTimeout)
	defer cancel()
	if _, err := a.Abort(ending, id); err != nil {
		return outcome, err
	}
	return turn.Wait(ending)
}

// filesOf are the files that the tools of these turns have recorded, from the
// agent's own conversation, absolute and sorted. It reads backwards, to the
// prompt of the first turn.
func (r *Runner) filesOf(ctx context.Context, a *supervisor.Agent, turns []string) (modified, created []string, err error) {
	const window = 64 // messages
	changed, isNew := map[string]bool{}, map[string]bool{}
	end, err := r.countMessages(ctx, a)
	if err != nil {
		return nil, nil, err
	}
	for begun := false; end > 0 && !begun; end -= min(end, window) {
		for at := end - min(end, window); at < end; {
			limit := end - at
			page, err := r.messages(ctx, a, protocol.GetMessages{Offset: &at, Limit: &limit})
			if err != nil {
				return nil, nil, err
			}
			if len(page) == 0 {
				break // the conversation has become shorter
			}
			at += uint64(len(page))
			for _, m := range page {
				begun = begun || m.TurnID == turns[0] && m.Role == protocol.RoleUser
				if !slices.Contains(turns, m.TurnID) {
					continue
				}
				for _, path := range m.Changed {
					changed[path] = true
				}
				for _, path := range m.Created {
					isNew[path] = true
				}
			}
		}
	}
	modified, created = []string{}, []string{}
	for path := range changed {
		if isNew[path] {
			created = append(created, path)
		} else {
			modified = append(modified, path)
		}
	}
	slices.Sort(modified)
	slices.Sort(created)
	return modified, created, nil
}

func (r *Runner) countMessages(ctx context.Context, a *supervisor.Agent) (uint64, error) {
	none := uint64(0)
	page, err := agents.Ask(ctx, r.o.Agents, a, protocol.GetMessages{Limit: &none})
	return page.Total, err
}

// messages are those of a page.
func (r *Runner) messages(ctx context.Context, a *supervisor.Agent, get protocol.GetMessages) ([]protocol.Message, error) {
	page, err := agents.Ask(ctx, r.o.Agents, a, get)
	if err != nil {
		return nil, err
	}
	var list []protocol.Message
	if err := strict.Fill(page.Messages, &list, strict.IgnoreUnknown); err != nil {
		return nil, &supervisor.ChildError{Command: get.Name(), Message: "the child's messages cannot be read: " + err.Error(), Unreadable: err}
	}
	return list, nil
}

func RequestID(given *string) string {
	if given == nil {
		return uuid.NewString()
	}
	return *given
}

// timeout is that of a task, in whole nanoseconds, rounded up.
func Timeout(seconds *float64) time.Duration {
	if seconds == nil {
		return api.DefaultTaskTimeout * time.Second
	}
	return time.Duration(math.Ceil(*seconds * float64(time.Second)))
}

// badAnswer says that an agent did its turn and did not answer in the declared
// shape, also when it was asked again.
func badAnswer(problem string) error {
	return &api.Error{
		Kind: api.KindExecutionError, Details: "the agent's answer is not of the declared shape: " + problem,
		Suggestions: []string{"Ask again with a new request_id, or another agent or model."},
	}
}
