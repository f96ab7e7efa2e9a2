package agents

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"nexus.internal/child/tool"
	"nexus.internal/protocol"
	"nexus.internal/protocol/strict"
)

var createSpec = tool.Spec{
	Name: "nexus_create",
	Description: "Create another agent, or continue the saved one of that name. It may do at most what you may do. " +
		"With initial_message it begins to work, and unless wait is false its answer is the result. " +
		"Calls that stand side by side run at the same time.",
	InputSchema: jsontext.Value(`{"type":"object","properties":{` +
		`"agent_id":{"type":"string","description":"its name: letters, digits, '.', '_' and '-'; with a leading dot it is temporary and nothing of it is saved"},` +
		`"preset":{"type":"string","description":"what it may do: trusted or sandboxed (the default)"},` +
		`"cwd":{"type":"string","description":"its working directory, absolute; yours if missing"},` +
		`"kind":{"type":"string","description":"a kind of agents of another make, which the configuration lets agents have: its program answers, confined to what you may do at most"},` +
		`"model":{"type":"string","description":"its model, or PROVIDER/MODEL"},` +
		`"system_prompt":{"type":"string","description":"the whole of its system prompt"},` +
		`"allowed_write_paths":{"type":"array","items":{"type":"string"},"description":"the only directories that it may change, absolute; none if empty"},` +
		`"initial_message":{"type":"string","description":"the first message to it"},` +
		`"wait":{"type":"boolean","description":"wait for the answer to initial_message (default true)"}},` +
		`"required":["agent_id"],"additionalProperties":false}`),
}

type createInput struct {
	AgentID           string    `json:"agent_id"`
	Preset            *string   `json:"preset,omitzero"`
	Cwd               *string   `json:"cwd,omitzero"`
	Kind              *string   `json:"kind,omitzero"`
	Model             *string   `json:"model,omitzero"`
	SystemPrompt      *string   `json:"system_prompt,omitzero"`
	AllowedWritePaths *[]string `json:"allowed_write_paths,omitzero"`
	InitialMessage    *string   `json:"initial_message,omitzero"`
	Wait              *bool     `json:"wait,omitzero"`
}

func (in createInput) summary() string {
	text := "create agent " + in.AgentID
	if in.Kind != nil {
		text += " of kind " + preview(*in.Kind)
	}
	if in.Preset != nil {
		text += " (" + *in.Preset + ")"
	}
	if in.InitialMessage != nil {
		text += ": " + preview(*in.InitialMessage)
	}
	return text
}

// created is what create_agent gives back.
type created struct {
	AgentID          string  `json:"agent_id"`
	Restored         bool    `json:"restored" wire:"default"`
	MessageCount     uint64  `json:"message_count" wire:"default"`
	InitialRequestID string  `json:"initial_request_id" wire:"default"`
	InitialResponse  *answer `json:"initial_response"`
	InitialError     *struct {
		Message string `json:"message"`
	} `json:"initial_error"`
}

func (in createInput) run(ctx context.Context, c caller) (tool.Result, error) {
	wait := in.InitialMessage != nil && (in.Wait == nil || *in.Wait)
	in.Wait = nil // goes by another name there
	params := struct {
		createInput
		Wait bool `json:"wait_for_initial_response,omitzero"`
	}{in, wait}
	var made created
	if !wait {
		if err := c.ask(ctx, "create_agent", params, &made); err != nil {
			return tool.Result{}, err
		}
		text := made.about()
		if in.InitialMessage != nil {
			text += ". It works on the message, which has the request_id " + made.InitialRequestID
		}
		return tool.Result{Text: text}, nil
	}
	text, err := c.through(ctx, in.AgentID, *in.InitialMessage, func() (string, error) {
		if err := c.ask(ctx, "create_agent", params, &made); err != nil {
			return "", err
		}
		if made.InitialError != nil {
			return "", errors.New(made.InitialError.Message)
		}
		if made.InitialResponse == nil {
			return "", errors.New("there is no answer")
		}
		return made.InitialResponse.text(made.AgentID)
	})
	switch {
	case made.AgentID == "": // it was not created
		return tool.Result{}, err
	case err != nil:
		return tool.Result{IsError: true, Text: fmt.Sprintf("%s, but the message came to nothing: %v", made.about(), err)}, nil
	default:
		return tool.Result{Text: made.about() + ". It answered:\n\n" + text}, nil
	}
}

func (made created) about() string {
	if made.Restored {
		return fmt.Sprintf("agent %s continues its saved conversation of %d messages", made.AgentID, made.MessageCount)
	}
	return fmt.Sprintf("agent %s is created", made.AgentID)
}

// answer is what send gives back.
type answer struct {
	Content    string `json:"content" wire:"default"`
	RequestID  string `json:"request_id"`
	StopReason string `json:"stop_reason" wire:"default"`
	Cancelled  bool   `json:"cancelled" wire:"default"`
	Truncated  bool   `json:"truncated" wire:"default"`
}

// text is the answer as a model reads it.
func (a answer) text(agent string) (string, error) {
	if a.Cancelled {
		return "", fmt.Errorf("the message to %s was cancelled before it was answered", agent)
	}
	text := a.Content
	if strings.TrimSpace(text) == "" {
		text = "[" + agent + " has done its turn without saying anything]"
	}
	if a.Truncated {
		text += "\n[this is the beginning of a longer answer]"
	}
	switch protocol.StopReason(a.StopReason) {
	case protocol.StopMaxIterations:
		text += "\n[" + agent + " stopped at its limit of calls and may not be done]"
	case protocol.StopMaxTokens:
		text += "\n[this answer was cut off at its model's limit of tokens]"
	case protocol.StopContentFilter:
		text += "\n[this answer was cut off by its model's service (content filter)]"
	case protocol.StopCompleted, protocol.StopAborted, protocol.StopError:
	}
	return text, nil
}

var destroySpec = tool.Spec{
	Name: "nexus_destroy",
	Description: "End an agent that you created, and the agents that it created. " +
		"The conversation of one whose name has no leading dot stays saved.",
	InputSchema: jsontext.Value(`{"type":"object","properties":{` +
		`"agent_id":{"type":"string"}},"required":["agent_id"],"additionalProperties":false}`),
}

type destroyInput struct {
	AgentID string `json:"agent_id"`
}

func (in destroyInput) summary() string { return "destroy agent " + in.AgentID }

func (in destroyInput) run(ctx context.Context, c caller) (tool.Result, error) {
	var done struct {
		Success bool `json:"success"`
	}
	if err := c.ask(ctx, "destroy_agent", in, &done); err != nil {
		return tool.Result{}, err
	}
	if !done.Success {
		return tool.Result{}, fmt.Errorf("there is no agent %s", in.AgentID)
	}
	return tool.Result{Text: fmt.Sprintf("agent %s is destroyed", in.AgentID)}, nil
}

var sendSpec = tool.Spec{
	Name: "nexus_send",
	Description: "Send a message to another agent and wait for its answer, which is the result. " +
		"The agent keeps its conversation between messages. Calls to several agents, side by side, run at the same time.",
	InputSchema: jsontext.Value(`{"type":"object","properties":{` +
		`"agent_id":{"type":"string"},` +
		`"content":{"type":"string","description":"the message"},` +
		`"timeout_s":{"type":"number","exclusiveMinimum":0,"maximum":86400,"description":"seconds that the agent may work on it"}},` +
		`"required":["agent_id","content"],"additionalProperties":false}`),
}

type sendInput struct {
	AgentID  string   `json:"agent_id"`
	Content  string   `json:"content"`
	TimeoutS *float64 `json:"timeout_s,omitzero"`
}

func (in sendInput) summary() string {
	return "send to agent " + in.AgentID + ": " + preview(in.Content)
}

func (in sendInput) run(ctx context.Context, c caller) (tool.Result, error) {
	text, err := c.through(ctx, in.AgentID, in.Content, func() (string, error) {
		var got answer
		if err := c.ask(ctx, "send", in, &got); err != nil {
			return "", err
		}
		return got.text(in.AgentID)
	})
	return tool.Result{Text: text}, err
}

var statusSpec = tool.Spec{
	Name:        "nexus_status",
	Description: "List the agents there are, or describe one: its state, what it works on, its tokens and its context.",
	InputSchema: jsontext.Value(`{"type":"object","properties":{` +
		`"agent_id":{"type":"string","description":"the agent to describe; all are listed if missing"}},"additionalProperties":false}`),
}

type statusInput struct {
	AgentID *string `json:"agent_id,omitzero"`
}

func (in statusInput) summary() string {
	if in.AgentID == nil {
		return "list the agents"
	}
	return "describe agent " + *in.AgentID
}

// agentRef names an agent.
type agentRef struct {
	AgentID string `json:"agent_id"`
}

// run gives JSON, as models read it well.
func (in statusInput) run(ctx context.Context, c caller) (tool.Result, error) {
	var list struct {
		Agents []jsontext.Value `json:"agents"`
	}
	if err := c.ask(ctx, "list_agents", struct{}{}, &list); err != nil {
		return tool.Result{}, err
	}
	if in.AgentID == nil {
		return text(list)
	}
	about := struct {
		Agent   jsontext.Value `json:"agent,omitzero"`
		Tokens  jsontext.Value `json:"tokens"`
		Context jsontext.Value `json:"context"`
	}{}
	for _, entry := range list.Agents {
		var named agentRef
		if strict.Unmarshal(entry, &named, strict.IgnoreUnknown) == nil && named.AgentID == *in.AgentID {
			about.Agent = entry
		}
	}
	for method, part := range map[string]*jsontext.Value{"get_tokens": &about.Tokens, "get_context": &about.Context} {
		value, err := c.raw(ctx, method, agentRef{*in.AgentID})
		if err != nil {
			return tool.Result{}, err
		}
		*part = value
	}
	return text(about)
}

func text(v any) (tool.Result, error) {
	out, err := json.Marshal(v, json.Deterministic(true))
	return tool.Result{Text: string(out)}, err
}

var cancelSpec = tool.Spec{
	Name:        "nexus_cancel",
	Description: "Cancel a message that an agent you created works on, or that waits for it. nexus_status tells its request_id.",
	InputSchema: jsontext.Value(`{"type":"object","properties":{` +
		`"agent_id":{"type":"string"},"request_id":{"type":"string"}},` +
		`"required":["agent_id","request_id"],"additionalProperties":false}`),
}

type cancelInput struct {
	AgentID   string `json:"agent_id"`
	RequestID string `json:"request_id"`
}

func (in cancelInput) summary() string {
	return "cancel request " + in.RequestID + " of agent " + in.AgentID
}

func (in cancelInput) run(ctx context.Context, c caller) (tool.Result, error) {
	var done struct {
		Cancelled bool `json:"cancelled"`
	}
	if err := c.ask(ctx, "cancel", in, &done); err != nil {
		return tool.Result{}, err
	}
	if !done.Cancelled {
		return tool.Result{}, fmt.Errorf("agent %s has no request %s that waits or runs", in.AgentID, in.RequestID)
	}
	return tool.Result{Text: fmt.Sprintf("request %s of agent %s is cancelled", in.RequestID, in.AgentID)}, nil
}

var shutdownSpec = tool.Spec{
	Name:        "nexus_shutdown",
	Description: "End the server and every agent, yourself included. Only an agent without restrictions may.",
	InputSchema: jsontext.Value(`{"type":"object","properties":{},"additionalProperties":false}`),
}

type shutdownInput struct{}

func (shutdownInput) summary() string { return "end the server with all its agents" }

func (in shutdownInput) run(ctx context.Context, c caller) (tool.Result, error) {
	if _, err := c.raw(ctx, "shutdown_server", in); err != nil {
		return tool.Result{}, err
	}
	return tool.Result{Text: "the server is going down"}, nil
}
