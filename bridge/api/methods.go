package api

import "reflect"

// Scope says where a method is called.
type Scope int

const (
	// Global methods are called at POST / and POST /rpc.
	Global Scope = iota
	// Agent methods are called at POST /agent/{id}.
	Agent
	// Both are called at either place. At POST /agent/{id} they are about that
	// agent.
	Both
)

func (s Scope) String() string {
	switch s {
	case Agent:
		return "agent"
	case Both:
		return "both"
	default:
		return "global"
	}
}

// Effect says whether a method changes anything.
type Effect int

const (
	// Changes is what a read-only key may not do: it changes something, or starts a
	// program.
	Changes Effect = iota
	// Reads changes nothing, but that an agent that does not run may be started to
	// answer, if the key is good for that.
	Reads
)

func (e Effect) String() string {
	if e == Reads {
		return "reads"
	}
	return "changes"
}

// Method is one row of the table.
type Method struct {
	Name   string
	Scope  Scope
	Effect Effect
	// Params and Result are zero values of the method's types.
	Params any
	Result any
	// Summary is one line for people, without a full stop.
	Summary string
}

// Methods is every method of the façade, those of an agent alone last. It must not be
// changed.
var Methods = []Method{
	{"create_agent", Global, Changes, CreateAgentParams{}, CreateAgentResult{}, "Start an agent, or continue the saved one of that name"},
	{"destroy_agent", Global, Changes, AgentIDParams{}, DestroyAgentResult{}, "Stop an agent and forget it; a named one's session stays saved"},
	{"list_agents", Global, Reads, None{}, ListAgentsResult{}, "List the agents that the server runs"},
	{"list_sessions", Global, Reads, ListSessionsParams{}, ListSessionsResult{}, "List the saved sessions, the latest used first"},
	{"load_session", Global, Changes, LoadSessionParams{}, LoadSessionResult{}, "Start an agent from a saved session"},
	{"save_session", Global, Changes, SaveSessionParams{}, SaveSessionResult{}, "Save a temporary agent under a name, or a copy of a named one"},
	{"clone_session", Global, Changes, CloneSessionParams{}, CloneSessionResult{}, "Copy a session as it is now"},
	{"rename_session", Global, Changes, RenameSessionParams{}, RenameSessionResult{}, "Give a session another name, and its agent too"},
	{"delete_session", Global, Changes, DeleteSessionParams{}, DeleteSessionResult{}, "Delete a saved session for good"},
	{"get_agent_summaries", Global, Reads, AgentSummariesParams{}, AgentSummariesResult{}, "Tell how all agents stand"},
	{"rpc.discover", Global, Reads, None{}, DiscoverResult{}, "Describe all methods, as an OpenRPC document"},
	{"shutdown_server", Global, Changes, None{}, SuccessResult{}, "Finish what runs, stop every agent and end the server"},
	{"rotate_key", Global, Changes, RotateKeyParams{}, RotateKeyResult{}, "Put another key into the server's key file"},
	{"create_key", Global, Changes, CreateKeyParams{}, CreateKeyResult{}, "Make a key that is good for reading, or for one agent"},
	{"list_keys", Global, Reads, None{}, ListKeysResult{}, "List the keys that create_key made and that are good"},
	{"create_page_code", Global, Changes, None{}, CreatePageCodeResult{}, "Make a code that opens the page once, within a minute, in place of the key"},
	{"revoke_key", Global, Changes, RevokeKeyParams{}, RevokeKeyResult{}, "End a key that create_key made"},

	{"execute_task", Both, Changes, ExecuteTaskParams{}, ExecuteTaskResult{}, "Have the executor do one task and report in a fixed shape"},
	{"create_plan", Both, Changes, CreatePlanParams{}, CreatePlanResult{}, "Have the planner divide a request into tasks"},
	{"validate_code", Both, Changes, ValidateCodeParams{}, ValidateCodeResult{}, "Have a real checker of the machine look at code, without running it"},
	{"run_plan", Global, Changes, RunPlanParams{}, RunPlanResult{}, "Carry out the tasks of a plan by several agents, in the order of their dependencies"},
	{"update_context", Both, Changes, UpdateContextParams{}, UpdateContextResult{}, "Tell every agent, or one, something beside the conversation"},

	{"send", Agent, Changes, SendParams{}, SendResult{}, "Send a message and wait for the answer"},
	{"cancel", Both, Changes, CancelParams{}, CancelResult{}, "Cancel a send that waits or runs; globally, a run of a plan"},
	{"shutdown", Agent, Changes, None{}, SuccessResult{}, "Stop the agent's process; the next send starts it again"},
	{"get_tokens", Agent, Reads, None{}, GetTokensResult{}, "Tell how the context window is used"},
	{"get_context", Agent, Reads, None{}, GetContextResult{}, "Describe the conversation"},
	{"get_messages", Agent, Reads, GetMessagesParams{}, GetMessagesResult{}, "Read the conversation, a page at a time"},
	{"compact", Agent, Changes, CompactParams{}, CompactResult{}, "Replace all but the last turns of the conversation by a summary"},
	{"list_models", Agent, Reads, None{}, ListModelsResult{}, "List the models that the agent can be switched to"},
	{"get_model", Agent, Reads, None{}, GetModelResult{}, "Tell which model answers"},
	{"set_model", Agent, Changes, SetModelParams{}, SetModelResult{}, "Switch the model for the turns to come"},
	{"set_cwd", Agent, Changes, SetCwdParams{}, SetCwdResult{}, "Move to another working directory for the turns to come"},
	{"get_permissions", Agent, Reads, None{}, GetPermissionsResult{}, "Tell what the agent may do, and what waits for an approval"},
	{"set_permissions", Agent, Changes, SetPermissionsParams{}, SetPermissionsResult{}, "Change what the agent may do, at once"},
	{"respond_permission", Agent, Changes, RespondPermissionParams{}, RespondPermissionResult{}, "Approve or deny a call that waits for it"},
	{"get_system_prompt", Agent, Reads, None{}, GetSystemPromptResult{}, "Read the system prompt"},
	{"set_system_prompt", Agent, Changes, SetSystemPromptParams{}, UpdatedResult{}, "Replace the system prompt for the turns to come"},
	{"list_tools", Agent, Reads, None{}, ListToolsResult{}, "List the tools that the model may call"},
	{"mcp_list_servers", Agent, Reads, None{}, MCPListServersResult{}, "List the MCP servers of the agent's configuration"},
	{"mcp_status", Agent, Reads, MCPServerParams{}, MCPStatusResult{}, "Tell how one MCP server gets on"},
	{"mcp_connect", Agent, Changes, MCPConnectParams{}, MCPConnectResult{}, "Start an MCP server, also one that the project names"},
	{"mcp_disconnect", Agent, Changes, MCPServerParams{}, MCPDisconnectResult{}, "End an MCP server until it is connected again"},
}

// Once reports whether the method does its work once for each request_id, and a
// caller may give it one: then it can be called again without harm.
func (m Method) Once() bool {
	if m.Params == nil {
		return false
	}
	id, ok := reflect.TypeOf(m.Params).FieldByName("RequestID")
	return ok && id.Type.Kind() == reflect.Pointer
}

// Find looks a method up by its exact name.
func Find(name string) (Method, bool) {
	for _, m := range Methods {
		if m.Name == name {
			return m, true
		}
	}
	return Method{}, false
}
