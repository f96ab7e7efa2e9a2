package toolenv

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"go.uber.org/zap"

	"nexus.internal/child/parent"
	"nexus.internal/child/permission"
	"nexus.internal/child/tool"
	"nexus.internal/child/tool/file"
	"nexus.internal/protocol"
	"nexus.internal/protocol/textcut"
	"nexus.internal/protocol/transcript"
)

const (
	// maxInput bounds the input that a question shows, in bytes.
	maxInput = 16 << 10
	// maxRun bounds that of a question about what runs, and its command, in bytes: these are shown whole, and both fit a frame, also in ASCII.
	maxRun = 128 << 10
)

// turnSnapshot is the environment as one turn finds it.
type turnSnapshot struct {
	*Env
	cwd string
}

// callRequest is one call as it is decided on.
type callRequest struct {
	call    permission.Call // its paths are real
	named   []string        // the same paths, absolute, with the links that the model wrote
	written []string        // the same paths, as the model wrote them
	left    []leftDir
	scope   tool.Scope
	options []protocol.PermissionOption // of a program of another make
	program bool                        // that program asks
	runs    bool                        // that program may run a command that stands anywhere in the input
}

// leftDir is a directory that links in a path led to, and that ".." left again.
type leftDir struct{ path, written string }

// decisions are the answers that there are, where a yes for the session is one for s.
func decisions(s permission.Session) []protocol.Decision {
	if s.Covers == "" {
		return []protocol.Decision{protocol.AllowOnce, protocol.Deny}
	}
	return []protocol.Decision{protocol.AllowOnce, protocol.AllowSession, protocol.Deny}
}

// Authorize implements [tool.Guard]: it decides, asks if need be, and decides anew
// whenever something has changed meanwhile.
func (snap *turnSnapshot) Authorize(ctx context.Context, t tool.Tool, call tool.Call) (permit permission.Permit, err error) {
	r, err := snap.request(t, call)
	if err != nil {
		return permit, err
	}
	for {
		policy, decision := snap.decide(r)
		switch decision.Verdict {
		case permission.Allow:
			return policy.Permit(r.call), nil
		case permission.Deny:
			return permit, errors.New(decision.Reason)
		case permission.Ask:
		}
		session := r.session(policy)
		answer, err := snap.ask(ctx, r, session, decision, call)
		switch {
		case errors.Is(err, errDecided):
			continue
		case err != nil:
			return permit, err
		case answer.Decision == protocol.Deny && answer.Reason != "":
			return permit, fmt.Errorf("it was not allowed: %s", answer.Reason)
		case answer.Decision == protocol.Deny:
			return permit, errors.New("it was not allowed; do not try it again in another way, but say what you need it for")
		case answer.Decision == protocol.AllowSession:
			snap.allow(session.Allowances)
		}
		// Meanwhile it may have been forbidden.
		if policy, decision = snap.decide(r); decision.Verdict == permission.Deny {
			return permit, errors.New(decision.Reason)
		}
		return policy.PermitOnce(r.call), nil
	}
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// request finds out what a call would touch.
func (snap *turnSnapshot) request(t tool.Tool, call tool.Call) (callRequest, error) {
	r := callRequest{call: permission.Call{Tool: call.Name}, scope: tool.Scope{Action: protocol.ActionExternal}}
	if scoped, ok := t.(tool.Scoped); ok {
		var err error
		if r.scope, err = scoped.Scope(call.Input); err != nil {
			return callRequest{}, err
		}
	}
	if r.scope.Summary == "" {
		r.scope.Summary = "use the tool " + call.Name
	}
	policy := r.under(snap.currentPolicy())
	r.call = permission.Call{
		Tool: call.Name, Action: r.scope.Action, Programs: r.scope.Programs, Hosts: r.scope.Hosts,
		Plain: confines() && isPlain(r.scope, policy), ReadOnly: isReadOnly(r.scope, policy),
	}
	paths := r.scope.Paths
	switch r.scope.Action {
	case protocol.ActionRead, protocol.ActionWrite, protocol.ActionExecute:
		if len(paths) == 0 {
			paths = []string{snap.cwd} // which may have become a link
		}
	case protocol.ActionNone, protocol.ActionDelegate, protocol.ActionExternal, protocol.ActionFetch:
	}
	for _, written := range paths {
		named := absolutePath(snap.cwd, written)
		// Of a path that cannot be followed, what can be is decided on; the tool says
		// what is wrong with it.
		way, _ := file.Follow(named)
		path := way.Path
		whole, _ := file.Follow(wholePath(snap.cwd, written))
		for _, dir := range whole.Left {
			r.left = append(r.left, leftDir{dir, written})
		}
		if r.scope.Action == protocol.ActionRead && snap.keeps(path) {
			continue
		}
		r.written, r.named = append(r.written, written), append(r.named, named)
		r.call.Paths = append(r.call.Paths, path)
	}
	return r, nil
}

// under is the policy for the call.
func (r callRequest) under(p permission.Policy) permission.Policy {
	p = underSame(p, r.call.Tool)
	if r.onlyAdds() {
		p = p.Under(patchName, writeName)
	}
	for _, other := range r.scope.AlsoUnder {
		p = p.HeldTo(r.call.Tool, other)
	}
	return p
}

func (snap *turnSnapshot) decide(r callRequest) (permission.Policy, permission.Decision) {
	snap.mu.Lock()
	defer snap.mu.Unlock()
	return snap.judge(r)
}

// judge is decide for a caller that holds mu. What is said of a path is said of
// it as the model wrote it, if that is true of it too: where links lead that
// lie out of bounds is none of its business.
func (snap *turnSnapshot) judge(r callRequest) (permission.Policy, permission.Decision) {
	policy := snap.policy(snap.cwd)
	for _, other := range r.scope.AlsoUnder {
		if d := underSame(policy, other).Tool(other, r.call.Action); d.Verdict == permission.Deny {
			return policy, permission.Decision{Verdict: permission.Deny, Reason: "it would do what " + other + " does, and " + d.Reason}
		}
	}
	policy = r.under(policy)
	decision := policy.Decide(r.call)
	if decision.Verdict != permission.Deny {
		for _, dir := range r.left {
			if policy.Path(r.call.Tool, protocol.ActionRead, dir.path).Verdict == permission.Deny {
				return policy, permission.Decision{Verdict: permission.Deny, Reason: leadsOut(dir.written)}
			}
		}
		return policy, decision
	}
	if slices.Equal(r.named, r.call.Paths) {
		return policy, decision
	}
	written := r.call
	written.Paths = r.named
	if said := policy.Decide(written); said.Verdict == permission.Deny {
		return policy, said
	}
	for i, name := range r.named {
		if name != r.call.Paths[i] {
			decision.Reason = leadsOut(r.written[i])
			break
		}
	}
	return policy, decision
}

// leadsOut says of a path no more than that: what is outside is none of the agent's business.
func leadsOut(written string) string { return written + " leads out of what this agent may touch" }

// errDecided says that a question needs no answer any more.
var errDecided = errors.New("decided meanwhile")

// openQuestion is one call that waits for the parent.
type openQuestion struct {
	snap    *turnSnapshot
	request callRequest
	cancel  context.CancelCauseFunc
}

// cancelDecided ends the questions that need no answer any more. The caller holds mu.
func (env *Env) cancelDecided() {
	for q := range env.waiting {
		if _, decision := q.snap.judge(q.request); decision.Verdict != permission.Ask {
			q.cancel(errDecided)
		}
	}
}

// ask asks the parent, who is told what a yes for the session would be. The error is errDecided if the
// decision is not to ask any more.
func (snap *turnSnapshot) ask(ctx context.Context, r callRequest, session permission.Session, why permission.Decision, call tool.Call) (protocol.PermissionResponse, error) {
	client := snap.options.Parent
	switch {
	case client == nil || client.Approvals() == parent.Deny:
		return protocol.PermissionResponse{}, fmt.Errorf("%s; that needs an approval, and there is nobody to give one", why.Reason)
	case client.Approvals() == parent.Allow:
		return protocol.PermissionResponse{Decision: protocol.AllowOnce}, nil
	}
	input, err := r.shown(call.Input)
	if err != nil {
		return protocol.PermissionResponse{}, err
	}
	asking, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	q := &openQuestion{snap: snap, request: r, cancel: cancel}
	snap.mu.Lock()
	if _, now := snap.judge(r); now.Verdict != permission.Ask {
		snap.mu.Unlock()
		return protocol.PermissionResponse{}, errDecided
	}
	snap.waiting[q] = struct{}{}
	snap.mu.Unlock()
	defer func() {
		snap.mu.Lock()
		defer snap.mu.Unlock()
		delete(snap.waiting, q)
	}()
	answer, err := client.Permission(asking, protocol.PermissionRequest{
		TurnID: call.TurnID, ToolID: call.ID, ToolName: call.Name, Action: r.scope.Action,
		Summary: r.scope.Summary, Reason: why.Reason, Input: input, Paths: append([]string{}, r.call.Paths...),
		Command: r.scope.Command, Decisions: decisions(session), ForSession: session.Covers, Options: r.options,
	})
	switch {
	case ctx.Err() != nil:
		return answer, ctx.Err()
	case err != nil && errors.Is(context.Cause(asking), errDecided):
		return answer, errDecided
	case err != nil:
		return answer, fmt.Errorf("it needs an approval: %w", err)
	}
	return answer, nil
}

// allow grants something for the rest of the session.
func (env *Env) allow(grants []protocol.Allowance) {
	for _, a := range grants {
		if env.options.Journal != nil {
			if err := env.options.Journal.Commit(transcript.Allowance{Allowance: a, At: time.Now().UTC()}); err != nil {
				env.options.Log.Warn("an allowance is not saved and ends with this process", zap.Error(err))
			}
		}
	}
	env.mu.Lock()
	defer env.mu.Unlock()
	env.allowances = slices.Concat(env.allowances, grants)
	env.cancelDecided()
}

// Revoke takes allowances back, all if none are named, and says how many are gone and which are left.
// A call that runs goes on.
func (env *Env) Revoke(revoked []protocol.Allowance) (gone uint64, left []protocol.Allowance) {
	env.mu.Lock()
	defer env.mu.Unlock()
	before := len(env.allowances)
	env.allowances = protocol.Without(env.allowances, revoked)
	return uint64(before - len(env.allowances)), append([]protocol.Allowance{}, env.allowances...)
}

// shown is the input as a question shows it. That of what runs is shown whole, since any of it may be the program, such as the
// input of a shell; the error is for what nobody can be shown.
func (r callRequest) shown(input jsontext.Value) (jsontext.Value, error) {
	if r.runs || r.scope.Action == protocol.ActionExecute || r.scope.Command != "" {
		if size := max(len(input), len(r.scope.Command)); size > maxRun {
			return nil, fmt.Errorf("it needs an approval, and nobody can be shown all that would run: it has %d bytes, more than %d; write it to a file, and run that", size, maxRun)
		}
		return input, nil
	}
	return shownInput(input), nil
}

// shownInput is an input as a question shows it.
func shownInput(input jsontext.Value) jsontext.Value {
	if len(input) <= maxInput {
		return input
	}
	cut, err := json.Marshal(struct {
		Truncated bool   `json:"truncated"`
		Size      int    `json:"size"`
		Head      string `json:"head"`
		Tail      string `json:"tail"` // what it ends with is not hidden by what it begins with
	}{true, len(input), string(textcut.Head(input, maxInput/4)), string(textcut.Tail(input, maxInput/4))})
	if err != nil {
		return jsontext.Value("{}") // cannot be: a call's input is JSON, in UTF-8
	}
	return cut
}
