package toolenv

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"nexus.internal/child/permission"
	"nexus.internal/child/sandbox"
	"nexus.internal/child/tool"
	"nexus.internal/child/tool/file"
	"nexus.internal/protocol"
	"nexus.internal/protocol/rights"
)

// maxProgramFile bounds a file that a program of another make is given, in bytes.
const maxProgramFile = 8 << 20

// ProgramCall is something that a program of another make wants to do, or asks us to do.
type ProgramCall struct {
	TurnID, ID, Name string
	Input            jsontext.Value // an object; nil is none
	Action           protocol.Action
	Summary, Command string
	Paths, Hosts     []string
	Runs             bool // there may be a command in it, whatever the action
	Options          []protocol.PermissionOption

	confined bool // the kernel holds the program to the agent's permissions
}

// Spec, Run and Scope implement [tool.Scoped], so that such a call is decided on as one of a tool.
func (c ProgramCall) Spec() tool.Spec { return tool.Spec{Name: c.Name} }

func (c ProgramCall) Run(context.Context, tool.Call) (tool.Result, error) {
	return tool.Result{}, errors.New("it is the program that runs it")
}

func (c ProgramCall) Scope(jsontext.Value) (tool.Scope, error) {
	action := c.Action
	if action == protocol.ActionExecute && !c.confined { // nothing holds it to the walls that programs of tools have
		action = protocol.ActionExternal
	}
	return tool.Scope{Action: action, Paths: c.Paths, Hosts: c.Hosts, Command: c.Command, Summary: c.Summary}, nil
}

// Program is what an Env is for a program of another make. It is safe for concurrent use.
type Program struct {
	env *Env
	of  protocol.AgentProgram
}

// ForProgram is what the Env is for that program.
func ForProgram(env *Env, of protocol.AgentProgram) Program { return Program{env, of} }

// Ask decides on a call of a program's own, and asks the parent where that is to be asked.
// The error is that of ctx, or why nobody could be asked; both are a no.
func (p Program) Ask(ctx context.Context, c ProgramCall) (protocol.PermissionResponse, error) {
	if c.Input == nil {
		c.Input = jsontext.Value("{}")
	}
	c.confined = p.confined(p.env.currentPolicy())
	return p.decide(ctx, c)
}

func (p Program) decide(ctx context.Context, c ProgramCall) (protocol.PermissionResponse, error) {
	snap := &turnSnapshot{p.env, p.env.Cwd()}
	call := tool.Call{ID: c.ID, Name: c.Name, Input: c.Input, TurnID: c.TurnID}
	r, err := snap.request(c, call)
	if err != nil {
		return protocol.PermissionResponse{}, err
	}
	r.options, r.program, r.runs = c.Options, true, c.Runs
	for {
		policy, decision := snap.decide(r)
		switch decision.Verdict {
		case permission.Allow:
			return protocol.PermissionResponse{Decision: protocol.AllowOnce}, nil
		case permission.Deny:
			return protocol.PermissionResponse{Decision: protocol.Deny, Reason: decision.Reason}, nil
		case permission.Ask:
		}
		session := r.session(policy)
		answer, err := snap.ask(ctx, r, session, decision, call)
		switch {
		case errors.Is(err, errDecided):
			continue
		case err != nil:
			return protocol.PermissionResponse{}, err
		case answer.Decision == protocol.AllowSession:
			snap.allow(session.Allowances)
			if i := slices.IndexFunc(r.options, forSession); len(session.Allowances) == 0 && answer.OptionID == "" && i >= 0 {
				answer.OptionID = r.options[i].ID // the program has to remember it
			}
		}
		if _, decision = snap.decide(r); decision.Verdict == permission.Deny { // it was forbidden meanwhile
			return protocol.PermissionResponse{Decision: protocol.Deny, Reason: decision.Reason}, nil
		}
		return answer, nil
	}
}

// ReadFile reads a text file as read_file may, for a program that asks for it.
func (p Program) ReadFile(ctx context.Context, turnID, path string) (string, error) {
	const name = "read_file"
	snap := &turnSnapshot{p.env, p.env.Cwd()}
	c := ProgramCall{Name: name, Action: protocol.ActionRead, Summary: "read " + path, Paths: []string{path}}
	// The permit is for the file that was decided on, whatever the program has made of its name since.
	permit, err := snap.Authorize(ctx, c, tool.Call{ID: "read", Name: name, Input: jsontext.Value("{}"), TurnID: turnID})
	if err != nil {
		return "", err
	}
	f, _, err := file.Open(p.env.Space(tool.Call{Name: name, Permit: permit}), path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxProgramFile+1))
	switch {
	case err != nil:
		return "", err
	case len(text) > maxProgramFile:
		return "", fmt.Errorf("%s has more than %d bytes", path, maxProgramFile)
	case !utf8.Valid(text):
		return "", fmt.Errorf("%s is no text in UTF-8", path)
	}
	return string(text), nil
}

// WriteFile writes a file as write_file does, for a program that asks for it.
func (p Program) WriteFile(ctx context.Context, turnID, path, text string) error {
	input, err := json.Marshal(struct {
		Path    string `json:"path"`
		Content string `json:"content"`
	}{path, text})
	if err != nil {
		return err
	}
	calls := []protocol.ToolCall{{ID: "write", Name: "write_file", Input: input}}
	outcome := p.env.Tools().Run(ctx, turnID, calls, unwatched{})[0]
	if outcome.IsError {
		return errors.New(outcome.Text)
	}
	return nil
}

// unwatched is the [tool.Watcher] of a call that a program of another make asked for: it tells of it itself.
type unwatched struct{}

func (unwatched) Output(protocol.ToolCall, string) {}
func (unwatched) Done(tool.Outcome)                {}

// confined reports whether the kernel holds the program to what its agent may do: where that was asked
// for, and always under sandboxed, which promises it of all programs.
func (p Program) confined(policy permission.Policy) bool {
	return p.of.Sandbox || policy.Level() == rights.Sandboxed
}

// rules are those for the program under a policy. One that is not confined may do what its user
// may: what it asks is decided on, what it does without asking is not.
func (p Program) rules(policy permission.Policy) sandbox.Rules {
	if p.of.Sandbox && policy.Level() == rights.Yolo { // what was asked for holds whatever it may do else
		policy.Permissions.Preset = rights.Trusted
	}
	r := p.env.rules(permission.Permit{Policy: policy}, programName)
	r.Bare = true
	r.Inherit = nil // its environment is what was asked for
	if !p.confined(policy) {
		r.Confinement, r.Network, r.Gate, r.Loopback = sandbox.Unconfined, true, nil, nil
	} else if r.Confinement == sandbox.WherePossible {
		r.Confinement = sandbox.Always
	}
	r.Home = ""
	if p.of.Home != protocol.ProgramHomeUser {
		r.Home = p.env.home.dir
	}
	r.Limits.CPU = -1 // it lives as long as the agent
	return r
}
