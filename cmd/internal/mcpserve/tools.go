package mcpserve

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/jsonschema-go/jsonschema"
	"github.com/google/uuid"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/client"
	"nexus.internal/cmd/internal/cli"
	"nexus.internal/protocol/jsonrpc"
	"nexus.internal/protocol/schema"
)

const instructions = `nexus runs AI agents, each in a process of its own, with a conversation, tools and permissions of its own. Make one with
create_agent, talk to it with send (the answer is the agent's; it remembers the conversation), look at it with status, end a
turn with cancel. run_plan has several agents carry out tasks that depend on each other.`

// The arguments of the tools. A zero value is one that is missing.
type (
	createArgs struct {
		AgentID      string  `json:"agent_id,omitempty" jsonschema:"name of the agent: letters, digits, '.', '_' and '-'; a new name if missing. A saved agent of that name goes on with its conversation"`
		SystemPrompt *string `json:"system_prompt,omitempty" jsonschema:"instructions for the agent, in the place of the default ones"`
		Cwd          string  `json:"cwd,omitempty" jsonschema:"absolute path of the directory in which the agent works; default: the directory of this MCP server"`
		Preset       string  `json:"preset,omitempty" jsonschema:"permissions: sandboxed (reads and writes its directory, no network), trusted (asks before it leaves its directory; nobody is asked here, so such calls are denied), or a preset of the configuration"`
		Model        string  `json:"model,omitempty" jsonschema:"model, as ID or PROVIDER/ID; default: the configuration's"`
		IfExists     string  `json:"if_exists,omitempty" jsonschema:"if an agent of that name runs: fail (default), or use it"`
	}
	sendArgs struct {
		AgentID   string  `json:"agent_id" jsonschema:"name of the agent"`
		Content   string  `json:"content" jsonschema:"the message"`
		RequestID string  `json:"request_id,omitempty" jsonschema:"names the turn, for cancel; a repeated call with the same one gets the same answer and runs nothing twice; a new name if missing"`
		TimeoutS  float64 `json:"timeout_s,omitempty" jsonschema:"how long the turn may run, in seconds; no limit if missing"`
		WhenBusy  string  `json:"when_busy,omitempty" jsonschema:"while another turn runs: queue (wait behind it, the default), reject (an error), or steer (end it and go first)"`
	}
	statusArgs struct {
		AgentID string `json:"agent_id,omitempty" jsonschema:"name of an agent; all agents if missing"`
	}
	cancelArgs struct {
		RequestID string `json:"request_id" jsonschema:"request_id of the send, or of the run_plan"`
		AgentID   string `json:"agent_id,omitempty" jsonschema:"the agent of the send; missing for a run_plan"`
	}
	planArgs struct {
		Tasks     []taskArgs `json:"tasks" jsonschema:"1 to 100 tasks"`
		Agents    []string   `json:"agents,omitempty" jsonschema:"agents that carry out the plan; excludes size, cwd, preset and model, which are of new ones"`
		Size      int        `json:"size,omitempty" jsonschema:"how many agents are made for the run, 1 to 16; default: 2"`
		Cwd       string     `json:"cwd,omitempty" jsonschema:"absolute path of the directory in which they work; default: the directory of this MCP server"`
		Preset    string     `json:"preset,omitempty" jsonschema:"their permissions, as of create_agent"`
		Model     string     `json:"model,omitempty" jsonschema:"their model, as of create_agent"`
		RequestID string     `json:"request_id,omitempty" jsonschema:"names the run, for cancel: 1 to 64 letters, digits, '.', '_' and '-'. A call with the name of a run that was interrupted continues it"`
		TimeoutS  float64    `json:"timeout_s,omitempty" jsonschema:"how long the run may take, in seconds; no limit if missing"`
		OnFailure string     `json:"on_failure,omitempty" jsonschema:"when a task has failed: stop (begin no other, the default), or continue with those that do not depend on it"`
		Retry     bool       `json:"retry,omitempty" jsonschema:"whether an ended run of that name tries again what did not succeed"`
	}
	taskArgs struct {
		ID           string   `json:"id" jsonschema:"name of the task in the plan: 1 to 64 letters, digits, '.', '_' and '-'"`
		Type         string   `json:"type" jsonschema:"kind of work"`
		Description  string   `json:"description" jsonschema:"the work, in words"`
		Dependencies []string `json:"dependencies,omitempty" jsonschema:"ids of the tasks that must succeed before this one begins"`
		Priority     int      `json:"priority,omitempty" jsonschema:"of the tasks that could begin, the one with the lowest priority begins first; default: 0"`
	}
)

// agentsResult is that of status.
type agentsResult struct {
	Agents           []api.AgentInfo `json:"agents"`
	UnreachableNodes []string        `json:"unreachable_nodes,omitzero"`
}

func (b *bridge) addTools(s *mcp.Server) error {
	no, yes := new(false), new(true)
	return errors.Join(
		add(s, b, &mcp.Tool{
			Name: "create_agent", Annotations: &mcp.ToolAnnotations{DestructiveHint: no, OpenWorldHint: no},
			Description: "Start an AI agent that can be talked to with send. It has a process, a conversation, tools (files, shell) and permissions of its own.",
		}, b.create, enum{"if_exists", []any{api.IfExistsFail, api.IfExistsUse}}),
		add(s, b, &mcp.Tool{
			Name: "send", Annotations: &mcp.ToolAnnotations{DestructiveHint: yes, OpenWorldHint: yes},
			Description: "Send a message to an agent and wait for its answer, which may take minutes while it works. The agent remembers the conversation. Cancelling the call ends the turn.",
		}, b.send, enum{"when_busy", []any{api.WhenBusyQueue, api.WhenBusyReject, api.WhenBusySteer}}),
		add(s, b, &mcp.Tool{
			Name: "status", Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true, OpenWorldHint: no},
			Description: "Tell how agents are: state, model, directory, the turn that runs (request_id), what waits (queued), and the last error.",
		}, b.status),
		add(s, b, &mcp.Tool{
			Name: "cancel", Annotations: &mcp.ToolAnnotations{DestructiveHint: yes, IdempotentHint: true, OpenWorldHint: no},
			Description: "End a turn that waits or runs, by the request_id of its send and its agent; or a run of a plan, by the request_id of its run_plan. What was done stays done.",
		}, b.cancel),
		add(s, b, &mcp.Tool{
			Name: "run_plan", Annotations: &mcp.ToolAnnotations{DestructiveHint: yes, OpenWorldHint: yes},
			Description: "Have agents carry out tasks that depend on each other, side by side where they do not, and wait for the results, which may take long. Cancelling the call cancels the run.",
		}, b.plan, enum{"on_failure", []any{api.OnFailureStop, api.OnFailureContinue}},
			enum{"tasks.type", []any{"code_generation", "refactoring", "analysis", "testing"}}),
	)
}

// enum is an argument, or a member of the items of one (tasks.type), with its values.
type enum struct {
	name   string
	values []any
}

// add adds a tool, whose schemas follow from its types.
func add[In, Out any](s *mcp.Server, b *bridge, t *mcp.Tool, do func(context.Context, *client.Client, *progress, In) (Out, error), enums ...enum) error {
	in, err := jsonschema.For[In](nil)
	if err != nil {
		return fmt.Errorf("describe the arguments of %s: %w", t.Name, err)
	}
	for _, e := range enums {
		of := in
		outer, name, inner := strings.Cut(e.name, ".")
		if inner {
			of = in.Properties[outer].Items
		} else {
			name = outer
		}
		of.Properties[name].Enum = e.values
	}
	t.InputSchema = in
	b.arguments[t.Name] = slices.Sorted(maps.Keys(in.Properties))
	out, err := json.Marshal(schema.Of(reflect.TypeFor[Out](), schema.Written))
	if err != nil {
		return fmt.Errorf("describe the result of %s: %w", t.Name, err)
	}
	t.OutputSchema = jsontext.Value(out)
	mcp.AddTool(s, t, func(ctx context.Context, r *mcp.CallToolRequest, args In) (*mcp.CallToolResult, jsontext.Value, error) {
		result, err := call(ctx, b, r, args, do)
		if err != nil {
			return nil, nil, b.explained(ctx, err)
		}
		text, err := json.Marshal(result)
		return nil, text, err
	})
	return nil
}

// call does the work of a tool with a server, within the bound of calls.
func call[In, Out any](ctx context.Context, b *bridge, r *mcp.CallToolRequest, args In, do func(context.Context, *client.Client, *progress, In) (Out, error)) (out Out, err error) {
	select {
	case b.room <- struct{}{}:
		defer func() { <-b.room }()
	default:
		return out, fmt.Errorf("%d calls run already: call again when one has ended", maxCalls)
	}
	c, err := b.server(ctx)
	if err != nil {
		return out, err
	}
	defer c.Close()
	p := startProgress(ctx, r)
	defer p.stop()
	return do(ctx, c, p, args)
}

// hints are what is suggested here of some errors, where the server's words name what the tools do not have.
var hints = map[api.ErrorKind]string{
	api.KindAgentNotFound: "See status, or create the agent with create_agent.",
	api.KindAgentExists:   `Use the agent that is there (create_agent with if_exists "use" finds it), or take another name.`,
}

// ofTools has the names of methods and parameters that the tools have, too, or something else instead.
func ofTools(name string) (string, bool) {
	switch name {
	case api.ListAgents.Name:
		return "status", true
	case api.CreateAgent.Name, api.RunPlan.Name:
		return name, true
	}
	return "", false
}

// toolError is the error of a tool, as a model reads it.
type toolError string

func (e toolError) Error() string { return string(e) }

// begunError is the error of what was begun under a name, by which its outcome is to be had.
type begunError struct {
	error
	how string // to have it
}

func (e *begunError) Unwrap() error { return e.error }

// explained is an error for a model: its kind, and what to do about it, by tools or by verbs of this program.
func (b *bridge) explained(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return toolError("the call was cancelled")
	}
	e, ok := errors.AsType[*client.RPCError](err)
	if !ok {
		return b.explainedHere(err)
	}
	text := fmt.Sprintf("%s (%d): %s", e.Data.Type, e.Code, e.Error())
	if hint, ok := hints[api.ErrorKind(e.Data.Type)]; ok {
		return toolError(text + "\n" + hint)
	}
	for _, suggestion := range e.Data.RecoverySuggestions {
		text += "\n" + b.app.InVerbs(suggestion, ofTools)
	}
	return toolError(text)
}

// explainedHere is explained for an error that no server gave a kind and a code.
func (b *bridge) explainedHere(err error) error {
	begun, _ := errors.AsType[*begunError](err)
	_, kind := cli.KindOf(err)
	_, broke := errors.AsType[*client.ConnError](err)
	code, text := "", err.Error()
	switch param, wrong := errors.AsType[*api.ParamError](err); {
	case wrong:
		kind, code, text = string(api.KindInvalidParams), fmt.Sprintf(" (%d)", api.Errors[api.KindInvalidParams].Code), param.Error()
	case errors.Is(err, client.ErrNoServer) && b.app.Starts():
		text = "the server has ended, and the next call starts it again"
	case errors.Is(err, client.ErrNoServer):
		text = b.app.ServerEnded(err).Error()
	case broke:
		kind = "CONNECTION_FAILED"
	}
	if begun != nil && (broke || errors.Is(err, client.ErrNoServer)) {
		text += "\n" + begun.how
	}
	return toolError(kind + code + ": " + text)
}

// wrongArguments is the answer to a call whose arguments are not as the tool has them, in the shape of other errors.
func (b *bridge) wrongArguments(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, r mcp.Request) (mcp.Result, error) {
		answer, err := next(ctx, method, r)
		result, ok := answer.(*mcp.CallToolResult)
		if err != nil || !ok || result.GetError() == nil {
			return answer, err
		}
		if _, ours := errors.AsType[toolError](result.GetError()); ours {
			return answer, nil
		}
		problem := strings.NewReplacer(`validating "arguments": `, "", "validating root: ", "", "validating /properties/", "").Replace(result.GetError().Error())
		text := fmt.Sprintf("%s (%d): wrong arguments: %s", api.KindInvalidParams, api.Errors[api.KindInvalidParams].Code, problem)
		if call, ok := r.GetParams().(*mcp.CallToolParamsRaw); ok {
			text += fmt.Sprintf("\nCorrect them and call it again: %s takes %s.", call.Name, strings.Join(b.arguments[call.Name], ", "))
		}
		wrong := &mcp.CallToolResult{}
		wrong.SetError(toolError(text))
		return wrong, nil
	}
}

// given is a parameter, nil for an argument that is missing.
func given[T comparable](value T) *T {
	if value == *new(T) {
		return nil
	}
	return &value
}

// here is the directory in which agents work if none is named; nil if there is none any more.
func here() *string {
	dir, err := os.Getwd()
	if err != nil {
		return nil
	}
	return &dir
}

func (b *bridge) create(ctx context.Context, c *client.Client, _ *progress, a createArgs) (api.CreateAgentResult, error) {
	p := api.CreateAgentParams{
		AgentID: given(a.AgentID), SystemPrompt: a.SystemPrompt, Cwd: given(a.Cwd), Preset: given(a.Preset), Model: given(a.Model), IfExists: given(a.IfExists),
	}
	if p.Cwd == nil {
		p.DefaultCwd = here()
	}
	return client.Do(ctx, c, "", api.CreateAgent, p)
}

func (b *bridge) send(ctx context.Context, c *client.Client, told *progress, a sendArgs) (api.SendResult, error) {
	if err := api.CheckAgentID(a.AgentID); err != nil {
		return api.SendResult{}, err
	}
	p := api.SendParams{
		Content: a.Content, RequestID: given(a.RequestID), TimeoutS: given(a.TimeoutS), WhenBusy: given(a.WhenBusy),
		OnDisconnect: new(api.OnDisconnectCancel), // also where this program is killed
		Source:       new("mcp"),
	}
	if p.RequestID == nil {
		p.RequestID = new(uuid.NewString())
	}
	told.say("sent to %s, request_id %s", a.AgentID, *p.RequestID)
	length := 0
	for part, err := range c.SendStream(ctx, a.AgentID, p) {
		if err != nil {
			return api.SendResult{}, &begunError{err, fmt.Sprintf("The same send with request_id %s tells how the turn ended and does not run it again, which a new one does.", *p.RequestID)}
		}
		switch part := part.(type) {
		case client.Text:
			length += len(part)
			told.set("%s has said %d bytes", a.AgentID, length)
		case client.Restart:
			length = 0
			told.set("%s begins the answer anew", a.AgentID)
		case client.Result:
			return api.SendResult(part), nil
		}
	}
	return api.SendResult{}, errors.New("the stream ended without a result")
}

func (b *bridge) status(ctx context.Context, c *client.Client, _ *progress, a statusArgs) (agentsResult, error) {
	all, err := client.Do(ctx, c, "", api.ListAgents, api.None{})
	if err != nil || a.AgentID == "" {
		return agentsResult(all), err
	}
	for _, agent := range all.Agents {
		if agent.AgentID == a.AgentID {
			return agentsResult{Agents: []api.AgentInfo{agent}}, nil
		}
	}
	if missing := fmt.Errorf("no agent %.64q runs", a.AgentID); len(all.UnreachableNodes) > 0 || c.Stale() != "" {
		return agentsResult{}, cli.MissingAt(c, missing, all.UnreachableNodes)
	}
	return agentsResult{}, &client.RPCError{
		Code: int(api.Errors[api.KindAgentNotFound].Code), Message: fmt.Sprintf("no agent %.64q runs", a.AgentID), Data: jsonrpc.ErrorData{Type: string(api.KindAgentNotFound)},
	}
}

func (b *bridge) cancel(ctx context.Context, c *client.Client, _ *progress, a cancelArgs) (api.CancelResult, error) {
	if a.AgentID != "" {
		if err := api.CheckAgentID(a.AgentID); err != nil {
			return api.CancelResult{}, err
		}
	}
	return cancelAt(ctx, c, a.AgentID, a.RequestID)
}

// cancelAt cancels a send of an agent; without one, a run of a plan.
func cancelAt(ctx context.Context, c *client.Client, agent, request string) (result api.CancelResult, err error) {
	path := client.RootPath
	if agent != "" {
		path = client.AgentPath(agent)
	}
	err = c.Call(ctx, path, api.Cancel.Name, api.CancelParams{RequestID: request}, &result)
	return result, err
}

// cancelTime bounds the cancelling of a run whose call was cancelled.
const cancelTime = 10 * time.Second

func (b *bridge) plan(ctx context.Context, c *client.Client, told *progress, a planArgs) (api.RunPlanResult, error) {
	p := api.RunPlanParams{RequestID: given(a.RequestID), TimeoutS: given(a.TimeoutS), OnFailure: given(a.OnFailure), Retry: given(a.Retry)}
	if p.RequestID == nil {
		p.RequestID = new(uuid.NewString())
	}
	for _, t := range a.Tasks {
		p.Plan.Tasks = append(p.Plan.Tasks, api.PlanTask{ID: t.ID, Type: t.Type, Description: t.Description, Dependencies: t.Dependencies, Priority: t.Priority})
	}
	pool := api.PlanPool{Size: given(a.Size), Cwd: given(a.Cwd), Preset: given(a.Preset), Model: given(a.Model)}
	switch {
	case a.Agents == nil:
		if pool.Cwd == nil {
			pool.Cwd = here()
		}
		p.Pool = &pool
	case pool != (api.PlanPool{}):
		return api.RunPlanResult{}, api.Invalid("agents", "goes without size, cwd, preset and model, which are of new agents")
	default:
		p.Agents = &a.Agents
	}
	told.say("run %s", *p.RequestID)
	ended := 0
	for part, err := range c.RunPlanStream(ctx, p) {
		switch {
		case err != nil && ctx.Err() != nil:
			// A run outlives those who watch it: it is ended by its name.
			after, stop := context.WithTimeout(context.WithoutCancel(ctx), cancelTime)
			defer stop()
			_, failed := cancelAt(after, c, "", *p.RequestID)
			return api.RunPlanResult{}, errors.Join(err, failed)
		case err != nil:
			return api.RunPlanResult{}, &begunError{err, fmt.Sprintf("The same run_plan with request_id %s continues the run.", *p.RequestID)}
		}
		switch part := part.(type) {
		case client.PlanStart:
			ended = len(part.Completed)
		case client.TaskStart:
			told.say("%s: begun by %s (%d of %d tasks have ended)", part.TaskID, part.AgentID, ended, len(a.Tasks))
		case client.TaskEnd:
			ended++
			told.say("%s: %s (%d of %d tasks have ended)", part.TaskID, part.Status, ended, len(a.Tasks))
		case client.PlanResult:
			return api.RunPlanResult(part), nil
		}
	}
	return api.RunPlanResult{}, errors.New("the stream ended without a result")
}
