package api

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

// Method is one row of the table.
type Method struct {
	Name  string
	Scope Scope
	// Params and Result are zero values of the method's types.
	Params any
	Result any
	// Summary is one line for people, without a full stop.
	Summary string
}

// Methods is every method of the façade, those of an agent alone last. It must not be
// changed.
var Methods = []Method{
	{"create_agent", Global, CreateAgentParams{}, CreateAgentResult{}, "Start an agent, or continue the saved one of that name"},
	{"destroy_agent", Global, AgentIDParams{}, DestroyAgentResult{}, "Stop an agent and forget it; a named one's session stays saved"},
	{"list_agents", Global, None{}, ListAgentsResult{}, "List the agents that the server runs"},
	{"list_sessions", Global, ListSessionsParams{}, ListSessionsResult{}, "List the saved sessions, the latest used first"},
	{"load_session", Global, LoadSessionParams{}, LoadSessionResult{}, "Start an agent from a saved session"},
	{"save_session", Global, SaveSessionParams{}, SaveSessionResult{}, "Save a temporary agent under a name, or a copy of a named one"},
	{"clone_session", Global, CloneSessionParams{}, CloneSessionResult{}, "Copy a session as it is now"},
	{"rename_session", Global, RenameSessionParams{}, RenameSessionResult{}, "Give a session another name, and its agent too"},
	{"delete_session", Global, DeleteSessionParams{}, DeleteSessionResult{}, "Delete a saved session for good"},
	{"get_agent_summaries", Global, AgentSummariesParams{}, AgentSummariesResult{}, "Tell how all agents stand"},
	{"shutdown_server", Global, None{}, SuccessResult{}, "Finish what runs, stop every agent and end the server"},

	{"execute_task", Both, ExecuteTaskParams{}, ExecuteTaskResult{}, "Have the executor do one task and report in a fixed shape"},
	{"create_plan", Both, CreatePlanParams{}, CreatePlanResult{}, "Have the planner divide a request into tasks"},
	{"run_plan", Global, RunPlanParams{}, RunPlanResult{}, "Carry out the tasks of a plan by several agents, in the order of their dependencies"},
	{"update_context", Both, UpdateContextParams{}, UpdateContextResult{}, "Tell every agent, or one, something beside the conversation"},

	{"send", Agent, SendParams{}, SendResult{}, "Send a message and wait for the answer"},
	{"cancel", Both, CancelParams{}, CancelResult{}, "Cancel a send that waits or runs; globally, a run of a plan"},
	{"shutdown", Agent, None{}, SuccessResult{}, "Stop the agent's process; the next send starts it again"},
	{"get_tokens", Agent, None{}, GetTokensResult{}, "Tell how the context window is used"},
	{"get_context", Agent, None{}, GetContextResult{}, "Describe the conversation"},
	{"get_messages", Agent, GetMessagesParams{}, GetMessagesResult{}, "Read the conversation, a page at a time"},
	{"get_model", Agent, None{}, GetModelResult{}, "Tell which model answers"},
	{"set_model", Agent, SetModelParams{}, SetModelResult{}, "Switch the model for the turns to come"},
	{"set_cwd", Agent, SetCwdParams{}, SetCwdResult{}, "Move to another working directory for the turns to come"},
	{"get_permissions", Agent, None{}, GetPermissionsResult{}, "Tell what the agent may do, and what waits for an approval"},
	{"set_permissions", Agent, SetPermissionsParams{}, SetPermissionsResult{}, "Change what the agent may do, at once"},
	{"respond_permission", Agent, RespondPermissionParams{}, RespondPermissionResult{}, "Approve or deny a call that waits for it"},
	{"get_system_prompt", Agent, None{}, GetSystemPromptResult{}, "Read the system prompt"},
	{"set_system_prompt", Agent, SetSystemPromptParams{}, UpdatedResult{}, "Replace the system prompt for the turns to come"},
	{"list_tools", Agent, None{}, ListToolsResult{}, "List the tools that the model may call"},
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
