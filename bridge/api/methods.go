package api

// Scope says where a method is called.
type Scope int

const (
	// Global methods are called at POST / and POST /rpc.
	Global Scope = iota
	// Agent methods are called at POST /agent/{id}.
	Agent
)

func (s Scope) String() string {
	if s == Agent {
		return "agent"
	}
	return "global"
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

// Methods is every method of the façade, global ones first. It must not be
// changed.
var Methods = []Method{
	{"create_agent", Global, CreateAgentParams{}, CreateAgentResult{}, "Start an agent, or continue the saved one of that name"},
	{"destroy_agent", Global, AgentIDParams{}, DestroyAgentResult{}, "Stop an agent and forget it; a named one's session stays saved"},
	{"list_agents", Global, None{}, ListAgentsResult{}, "List the agents that the server runs"},
	{"shutdown_server", Global, None{}, SuccessResult{}, "Finish what runs, stop every agent and end the server"},

	{"send", Agent, SendParams{}, SendResult{}, "Send a message and wait for the answer"},
	{"cancel", Agent, CancelParams{}, CancelResult{}, "Cancel a send that waits or runs"},
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
