package api

import (
	"reflect"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"nexus.internal/protocol"
)

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

// Reach says of which agents another agent may ask for a method, by a host call
// (SPEC §5.8).
type Reach int

const (
	// NoAgent may ask for it: the method is for clients.
	NoAgent Reach = iota
	// AnyAgent may ask for it; what it is about is not another agent.
	AnyAgent
	// Awake agents: those that run, or that the caller created.
	Awake
	// Peers are those of Awake that may do no more than the caller.
	Peers
	// Created agents: those that the caller created, or that those created.
	Created
	// Unrestricted callers alone may ask for it; it is about the server.
	Unrestricted
)

func (r Reach) String() string {
	return [...]string{"none", "any", "awake", "peers", "created", "unrestricted"}[r]
}

// Grant is what a call gives an agent that the agent's permissions leave open: a key for that
// agent alone is good for such a call only if it was made with may_grant (SPEC §6.5,
// "Grants"). The zero Grant gives nothing.
type Grant struct {
	// Act is what the call does, as in "to approve its calls".
	Act string
	// Unless is a value of the parameter Param with which a call gives nothing; "" for none.
	Param, Unless string
}

// By reports whether a call with these parameters gives anything. One that cannot be read does.
func (g Grant) By(params jsontext.Value) bool {
	if g.Act == "" || g.Unless == "" {
		return g.Act != ""
	}
	var members map[string]jsontext.Value
	if err := json.Unmarshal(params, &members); err != nil {
		return true
	}
	var value string
	err := json.Unmarshal(members[g.Param], &value)
	return err != nil || value != g.Unless
}

// Method is one row of the table: all that is known of a method before it is carried
// out. The server checks, audits and documents it by this row.
type Method struct {
	Name   string
	Scope  Scope
	Effect Effect
	Agents Reach
	// Unaudited says that a method which changes something leaves no line in the audit
	// log: what agents are told is in their sessions.
	Unaudited bool
	// Audit are the parameters that its audit lines have, from the tags of Params.
	Audit []Audited
	// Grant is what a call gives an agent beyond its permissions.
	Grant Grant
	// Draining says that clients may call it also while the server drains: to see what it
	// waits for and to end that.
	Draining bool
	// Alone says that a machine of a cluster answers it also without a majority of the others, though it is none of those that read: it ends or
	// checks something of this machine, and accepts nothing.
	Alone bool
	// Of are the parameters that name agents or sessions: of several machines, the one answers that has the first of these that any has.
	Of []string
	// Stream is what a stream says before the response; nil where there is none.
	Stream []Notification
	// Errors are the errors that the method gives besides CommonErrors.
	Errors []ErrorKind
	// Params and Result are zero values of the method's types.
	Params any
	Result any
	// Summary is one line for people, without a full stop.
	Summary string
}

// Def is the row of the method whose parameters are P and whose result is R: a handler
// of other types cannot be given to it.
type Def[P, R any] Method

// Row is the row without its types.
func (d Def[P, R]) Row() Method {
	m := Method(d)
	m.Params, m.Result, m.Audit = *new(P), *new(R), auditedOf(reflect.TypeFor[P]())
	return m
}

// The rows.
var (
	CreateAgent = Def[CreateAgentParams, CreateAgentResult]{
		Name: "create_agent", Scope: Global, Effect: Changes, Agents: AnyAgent, Of: []string{"agent_id", "parent_agent_id"},
		Summary: "Start an agent, or continue the saved one of that name",
		Errors:  []ErrorKind{KindAgentExists, KindAgentNotFound, KindTooManyAgents, KindSessionDamaged, KindSessionInUse, KindDirectoryGone, KindStartFailed, KindNotRecorded},
	}
	DestroyAgent = Def[AgentIDParams, DestroyAgentResult]{
		Name: "destroy_agent", Scope: Global, Effect: Changes, Agents: Created, Of: []string{"agent_id"},
		Summary: "Stop an agent and remove it; a named one's session stays saved",
	}
	ListAgents = Def[None, ListAgentsResult]{
		Name: "list_agents", Scope: Global, Effect: Reads, Agents: AnyAgent, Draining: true,
		Summary: "List the agents that the server runs",
	}
	ListKinds = Def[None, ListKindsResult]{
		Name: "list_kinds", Scope: Global, Effect: Reads, Agents: AnyAgent, Draining: true,
		Summary: "List the kinds of agents of other makes that create_agent takes",
	}
	ListNodes = Def[None, ListNodesResult]{
		Name: "list_nodes", Scope: Global, Effect: Reads, Draining: true,
		Summary: "List the machines of the cluster that the server is one of, or its machine alone",
	}
	DrainNode = Def[DrainNodeParams, DrainNodeResult]{
		Name: "drain_node", Scope: Global, Effect: Changes,
		Summary: "Hand over the agents of a machine to the others of its cluster, or end that",
	}
	LabelNode = Def[LabelNodeParams, LabelNodeResult]{
		Name: "label_node", Scope: Global, Effect: Changes,
		Summary: "Change the labels of a machine of the cluster, by which create_agent places agents, or list them",
	}
	RemoveNode = Def[RemoveNodeParams, RemoveNodeResult]{
		Name: "remove_node", Scope: Global, Effect: Changes,
		Summary: "Remove a machine that is lost for good, or drained, from the cluster",
		Errors:  []ErrorKind{KindNoQuorum},
	}
	ListSessions = Def[ListSessionsParams, ListSessionsResult]{
		Name: "list_sessions", Scope: Global, Effect: Reads,
		Summary: "List the saved sessions, the latest used first",
	}
	LoadSession = Def[LoadSessionParams, LoadSessionResult]{
		Name: "load_session", Scope: Global, Effect: Changes, Of: []string{"session_name"},
		Summary: "Start an agent from a saved session",
		Errors:  []ErrorKind{KindAgentExists, KindSessionNotFound, KindSessionDamaged, KindSessionInUse, KindDirectoryGone, KindStartFailed, KindStorageFull, KindNotRecorded},
	}
	Fork = Def[ForkParams, ForkResult]{
		Name: "fork", Scope: Global, Effect: Changes, Of: []string{"agent_id"},
		Summary: "Start an agent from an earlier message of another one's conversation",
		Errors:  []ErrorKind{KindAgentExists, KindSessionExists, KindSessionNotFound, KindSessionDamaged, KindSessionInUse, KindDirectoryGone, KindStartFailed, KindStorageFull, KindNotRecorded},
	}
	SaveSession = Def[SaveSessionParams, SaveSessionResult]{
		Name: "save_session", Scope: Global, Effect: Changes, Of: []string{"agent_id"},
		Summary: "Save a temporary agent under a name, or a copy of a named one",
		Errors:  []ErrorKind{KindAgentNotFound, KindSessionNotFound, KindSessionExists, KindSessionDamaged, KindSessionInUse, KindAgentRunning, KindStorageFull, KindNotRecorded},
	}
	CloneSession = Def[CloneSessionParams, CloneSessionResult]{
		Name: "clone_session", Scope: Global, Effect: Changes, Of: []string{"src_session"},
		Summary: "Copy a session as it is now",
		Errors:  []ErrorKind{KindSessionNotFound, KindSessionExists, KindSessionDamaged, KindStorageFull, KindNotRecorded},
	}
	RenameSession = Def[RenameSessionParams, RenameSessionResult]{
		Name: "rename_session", Scope: Global, Effect: Changes, Of: []string{"old_name"},
		Summary: "Give a session another name, and its agent too",
		Errors:  []ErrorKind{KindSessionNotFound, KindSessionExists, KindSessionDamaged, KindSessionInUse, KindAgentRunning, KindStorageFull, KindNotRecorded},
	}
	DeleteSession = Def[DeleteSessionParams, DeleteSessionResult]{
		Name: "delete_session", Scope: Global, Effect: Changes, Of: []string{"session_name"},
		Summary: "Delete a saved session permanently",
		Errors:  []ErrorKind{KindSessionInUse, KindAgentRunning, KindNotRecorded},
	}
	GetAgentSummaries = Def[AgentSummariesParams, AgentSummariesResult]{
		Name: "get_agent_summaries", Scope: Global, Effect: Reads,
		Summary: "Summarise the state of all agents",
	}
	Discover = Def[None, DiscoverResult]{
		Name: "rpc.discover", Scope: Global, Effect: Reads,
		Summary: "Describe all methods, as an OpenRPC document",
	}
	ShutdownServer = Def[None, SuccessResult]{
		Name: "shutdown_server", Scope: Global, Effect: Changes, Alone: true, Agents: Unrestricted,
		Summary: "Finish the running turns, stop every agent and end the server",
	}
	RotateKey = Def[RotateKeyParams, RotateKeyResult]{
		Name: "rotate_key", Scope: Global, Effect: Changes,
		Summary: "Replace the key in the server's key file",
		Errors:  []ErrorKind{KindNotRecorded},
	}
	CreateKey = Def[CreateKeyParams, CreateKeyResult]{
		Name: "create_key", Scope: Global, Effect: Changes,
		Summary: "Make a key for reading, or for one agent",
		Errors:  []ErrorKind{KindTooManyKeys, KindNotRecorded},
	}
	ListKeys = Def[None, ListKeysResult]{
		Name: "list_keys", Scope: Global, Effect: Reads,
		Summary: "List the valid keys made by create_key",
	}
	CreatePageCode = Def[None, CreatePageCodeResult]{
		Name: "create_page_code", Scope: Global, Effect: Changes, Alone: true,
		Summary: "Make a one-time code that opens the page within a minute, instead of the key",
	}
	RevokeKey = Def[RevokeKeyParams, RevokeKeyResult]{
		Name: "revoke_key", Scope: Global, Effect: Changes,
		Summary: "End a key made by create_key",
		Errors:  []ErrorKind{KindNotRecorded},
	}
	ExecuteTask = Def[ExecuteTaskParams, ExecuteTaskResult]{
		Name: "execute_task", Scope: Both, Effect: Changes, Of: []string{"agent_id"},
		Summary: "Have the executor do one task and report in a fixed shape",
		Stream:  taskStream,
		Errors:  turnErrors,
	}
	CreatePlan = Def[CreatePlanParams, CreatePlanResult]{
		Name: "create_plan", Scope: Both, Effect: Changes, Of: []string{"agent_id"},
		Summary: "Have the planner divide a request into tasks",
		Stream:  taskStream,
		Errors:  append(turnErrors[:len(turnErrors):len(turnErrors)], KindCancelled),
	}
	ValidateCode = Def[ValidateCodeParams, ValidateCodeResult]{
		Name: "validate_code", Scope: Both, Effect: Changes, Alone: true,
		Summary: "Check code with a checker of the machine, without running it",
		Errors:  []ErrorKind{KindCheckerNotFound, KindTimeout, KindExecutionError},
	}
	RunPlan = Def[RunPlanParams, RunPlanResult]{
		Name: "run_plan", Scope: Global, Effect: Changes, Stream: planStream,
		Summary: "Carry out the tasks of a plan by several agents, in the order of their dependencies",
		Errors:  []ErrorKind{KindRequestIDConflict, KindAgentNotFound, KindPlanRecordDamaged, KindNotRecorded, KindTooManyAgents, KindStartFailed},
	}
	ListRuns = Def[ListRunsParams, ListRunsResult]{
		Name: "list_runs", Scope: Global, Effect: Reads,
		Summary: "List the runs of plans, the latest first",
		Errors:  []ErrorKind{KindNotRecorded},
	}
	GetRun = Def[GetRunParams, GetRunResult]{
		Name: "get_run", Scope: Global, Effect: Reads,
		Summary: "Describe a run of a plan: the plan, and what has ended of it",
		Errors:  []ErrorKind{KindPlanRecordDamaged, KindNotRecorded},
	}
	UpdateContext = Def[UpdateContextParams, UpdateContextResult]{
		Name: "update_context", Scope: Both, Effect: Changes,
		Summary: "Change the notes that every agent, or one, has beside the conversation",
		Errors:  changeErrors,
	}
	GetNotes = Def[None, protocol.Notes]{
		Name: "get_notes", Scope: Both, Effect: Reads,
		Summary: "Read what update_context told an agent, or tells every agent that is made later",
		Errors:  childErrors,
	}
	Send = Def[SendParams, SendResult]{
		Name: "send", Scope: Agent, Effect: Changes, Agents: Peers, Unaudited: true, Stream: sendStream,
		Summary: "Send a message and wait for the answer",
		Errors:  turnErrors,
	}
	Cancel = Def[CancelParams, CancelResult]{
		Name: "cancel", Scope: Both, Effect: Changes, Alone: true, Agents: Created, Unaudited: true, Draining: true,
		Summary: "Cancel a waiting or running send; globally, a run of a plan",
		Errors:  []ErrorKind{KindAgentNotFound, KindPlanRecordDamaged},
	}
	Shutdown = Def[None, SuccessResult]{
		Name: "shutdown", Scope: Agent, Effect: Changes, Alone: true,
		Summary: "Stop the agent's process; the next send starts it again",
		Errors:  []ErrorKind{KindAgentNotFound},
	}
	GetTokens = Def[None, GetTokensResult]{
		Name: "get_tokens", Scope: Agent, Effect: Reads, Agents: Awake,
		Summary: "Report the use of the context window",
		Errors:  childErrors,
	}
	GetContext = Def[None, GetContextResult]{
		Name: "get_context", Scope: Agent, Effect: Reads, Agents: Awake,
		Summary: "Describe the conversation",
		Errors:  childErrors,
	}
	GetMessages = Def[GetMessagesParams, GetMessagesResult]{
		Name: "get_messages", Scope: Agent, Effect: Reads, Agents: Created,
		Summary: "Read the conversation, a page at a time",
		Errors:  childErrors,
	}
	Compact = Def[CompactParams, CompactResult]{
		Name: "compact", Scope: Agent, Effect: Changes,
		Summary: "Replace all but the last turns of the conversation by a summary",
		Errors:  append(modelErrors[:len(modelErrors):len(modelErrors)], KindAgentBusy),
	}
	NewSession = Def[None, NewSessionResult]{
		Name: "new_session", Scope: Agent, Effect: Changes,
		Summary: "Discard the conversation and begin another, with the same settings",
		Errors:  append(modelErrors[:len(modelErrors):len(modelErrors)], KindAgentBusy),
	}
	Undo = Def[UndoParams, protocol.UndoAnswer]{
		Name: "undo", Scope: Agent, Effect: Changes,
		Summary: "Take the last turn out of the conversation",
		Errors:  append(modelErrors[:len(modelErrors):len(modelErrors)], KindAgentBusy),
	}
	ListModels = Def[None, ListModelsResult]{
		Name: "list_models", Scope: Agent, Effect: Reads,
		Summary: "List the models that the agent can be switched to",
		Errors:  modelErrors,
	}
	GetModel = Def[None, GetModelResult]{
		Name: "get_model", Scope: Agent, Effect: Reads, Agents: Awake,
		Summary: "Return the present model",
		Errors:  childErrors,
	}
	SetModel = Def[SetModelParams, SetModelResult]{
		Name: "set_model", Scope: Agent, Effect: Changes,
		Summary: "Change the model from the next turn on",
		Errors:  changeErrors,
	}
	SetCwd = Def[SetCwdParams, SetCwdResult]{
		Name: "set_cwd", Scope: Agent, Effect: Changes,
		Summary: "Change the working directory from the next turn on",
		Errors:  changeErrors,
	}
	GetPermissions = Def[None, GetPermissionsResult]{
		Name: "get_permissions", Scope: Agent, Effect: Reads,
		Summary: "Return the agent's permissions, and the calls that wait for an approval",
		Errors:  childErrors,
	}
	RevokeAllowances = Def[RevokeAllowancesParams, protocol.RevokeAllowancesAnswer]{
		Name: "revoke_allowances", Scope: Agent, Effect: Changes,
		Summary: "Take back what was allowed to the agent for its session",
		Errors:  changeErrors,
	}
	SetPermissions = Def[SetPermissionsParams, SetPermissionsResult]{
		Name: "set_permissions", Scope: Agent, Effect: Changes,
		Summary: "Change the agent's permissions, at once",
		Errors:  changeErrors,
	}
	GetLimits = Def[None, LimitsResult]{
		Name: "get_limits", Scope: Agent, Effect: Reads,
		Summary: "Return the agent's limits, and the tokens that it has used",
		Errors:  []ErrorKind{KindAgentNotFound, KindSessionDamaged},
	}
	SetLimits = Def[SetLimitsParams, LimitsResult]{
		Name: "set_limits", Scope: Agent, Effect: Changes,
		Summary: "Change those limits of the agent that are given; to raise one needs the full key",
		Errors:  []ErrorKind{KindAgentNotFound, KindSessionDamaged, KindNotRecorded},
	}
	GetSettings = Def[None, SettingsResult]{
		Name: "get_settings", Scope: Agent, Effect: Reads,
		Summary: "Return how the agent's turns run: iterations, context, tool time, reasoning, fallback model",
		Errors:  childErrors,
	}
	SetSettings = Def[SetSettingsParams, SettingsResult]{
		Name: "set_settings", Scope: Agent, Effect: Changes,
		Summary: "Change those settings of the agent's turns that are given, from the next turn on",
		Errors:  changeErrors,
	}
	RespondPermission = Def[RespondPermissionParams, RespondPermissionResult]{
		Name: "respond_permission", Scope: Agent, Effect: Changes, Draining: true,
		Grant:   Grant{Act: "approve its calls", Param: "decision", Unless: string(protocol.Deny)},
		Summary: "Approve or deny a waiting call",
		Errors:  []ErrorKind{KindAgentNotFound, KindPermissionRequestNotFound},
	}
	GetSystemPrompt = Def[None, GetSystemPromptResult]{
		Name: "get_system_prompt", Scope: Agent, Effect: Reads,
		Summary: "Read the system prompt",
		Errors:  childErrors,
	}
	SetSystemPrompt = Def[SetSystemPromptParams, UpdatedResult]{
		Name: "set_system_prompt", Scope: Agent, Effect: Changes,
		Summary: "Replace the system prompt from the next turn on",
		Errors:  changeErrors,
	}
	ListTools = Def[None, ListToolsResult]{
		Name: "list_tools", Scope: Agent, Effect: Reads,
		Summary: "List the tools that the model may call",
		Errors:  childErrors,
	}
	ListJobs = Def[None, protocol.JobList]{
		Name: "list_jobs", Scope: Agent, Effect: Reads,
		Summary: "List the commands that the agent runs in the background",
		Errors:  childErrors,
	}
	MCPListServers = Def[None, MCPListServersResult]{
		Name: "mcp_list_servers", Scope: Agent, Effect: Reads,
		Summary: "List the MCP servers of the agent's configuration",
		Errors:  childErrors,
	}
	MCPStatus = Def[MCPServerParams, MCPStatusResult]{
		Name: "mcp_status", Scope: Agent, Effect: Reads,
		Summary: "Report the state of one MCP server",
		Errors:  childErrors,
	}
	MCPConnect = Def[MCPConnectParams, MCPConnectResult]{
		Name: "mcp_connect", Scope: Agent, Effect: Changes,
		Grant:   Grant{Act: "start an MCP server"},
		Summary: "Start an MCP server, also one that the project names",
		Errors:  childErrors,
	}
	MCPDisconnect = Def[MCPServerParams, MCPDisconnectResult]{
		Name: "mcp_disconnect", Scope: Agent, Effect: Changes,
		Summary: "End an MCP server until it is connected again",
		Errors:  childErrors,
	}
)

// Methods is every method of the façade, in the order of the reference, those of an agent alone
// last. It must not be changed.
var Methods = []Method{
	CreateAgent.Row(), DestroyAgent.Row(), ListAgents.Row(), ListKinds.Row(), ListNodes.Row(), DrainNode.Row(), LabelNode.Row(), RemoveNode.Row(), ListSessions.Row(), LoadSession.Row(), Fork.Row(), SaveSession.Row(), CloneSession.Row(),
	RenameSession.Row(), DeleteSession.Row(), GetAgentSummaries.Row(), Discover.Row(), ShutdownServer.Row(), RotateKey.Row(), CreateKey.Row(),
	ListKeys.Row(), CreatePageCode.Row(), RevokeKey.Row(), ExecuteTask.Row(), CreatePlan.Row(), ValidateCode.Row(), RunPlan.Row(), ListRuns.Row(), GetRun.Row(),
	UpdateContext.Row(), GetNotes.Row(), Send.Row(), Cancel.Row(), Shutdown.Row(), GetTokens.Row(), GetContext.Row(), GetMessages.Row(), Compact.Row(), NewSession.Row(), Undo.Row(),
	ListModels.Row(), GetModel.Row(), SetModel.Row(), SetCwd.Row(), GetPermissions.Row(), RevokeAllowances.Row(), SetPermissions.Row(), GetLimits.Row(),
	SetLimits.Row(), GetSettings.Row(), SetSettings.Row(), RespondPermission.Row(), GetSystemPrompt.Row(), SetSystemPrompt.Row(), ListTools.Row(), ListJobs.Row(), MCPListServers.Row(),
	MCPStatus.Row(), MCPConnect.Row(), MCPDisconnect.Row(),
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
