package api

import (
	"github.com/go-json-experiment/json/jsontext"

	"nexus.internal/protocol"
)

// The values of when_busy: what send does when the agent is busy.
const (
	WhenBusyQueue  = "queue"  // wait, first in, first out; the default
	WhenBusyReject = "reject" // -32001 AGENT_BUSY
	WhenBusySteer  = "steer"  // abort the running turn, then run this one
)

// The values of on_crash: the outcome of a send whose process crashes.
const (
	OnCrashFail  = "fail"  // -32000 CHILD_CRASHED; the default
	OnCrashRetry = "retry" // it is sent once more after the restart
)

// The values of on_disconnect: the outcome of a send whose client leaves.
const (
	OnDisconnectContinue = "continue" // it goes on; the default
	OnDisconnectCancel   = "cancel"   // it is cancelled
)

// The values of if_exists: what create_agent does if an agent of that name runs.
const (
	IfExistsFail = "fail" // AGENT_EXISTS; the default
	IfExistsUse  = "use"  // it is the result, if it matches the parameters
)

type (
	// None is the parameters of a method that has none.
	None struct{}

	// CreateAgentParams describes the agent to start.
	CreateAgentParams struct {
		// The agent's name; 8 hexadecimal digits if missing. A leading dot makes it
		// temporary: its session goes with it.
		AgentID *string `json:"agent_id,omitzero" audit:"text"`
		// Whether the server names the agent, temporarily: .1, .2 and so on.
		Temporary *bool `json:"temporary,omitzero" default:"false" audit:"-"`
		// Replaces the layered default; "" is none. At most 102,400 bytes.
		SystemPrompt *string `json:"system_prompt,omitzero" audit:"-"`
		// The permissions: trusted, sandboxed or a preset of the configuration. The
		// default is the configuration's, or sandboxed for an agent with a parent. It narrows
		// a saved agent and never widens it: set_permissions can do that.
		Preset *string `json:"preset,omitzero" audit:"text"`
		// The working directory, absolute. The default is the saved one, then the parent's,
		// then default_cwd, then the directory in which the server was started.
		Cwd *string `json:"cwd,omitzero" audit:"text"`
		// The working directory of a new agent that has neither cwd nor a parent, absolute.
		DefaultCwd *string `json:"default_cwd,omitzero" audit:"text"`
		// The model's name. The default is the configuration's.
		Model *string `json:"model,omitzero" audit:"text"`
		// The provider's name. The default is the configuration's.
		Provider *string `json:"provider,omitzero" audit:"text"`
		// The only directories that the agent's tools may change, absolute; none if empty.
		// Those outside of cwd become reachable. At most 256.
		AllowedWritePaths *[]string `json:"allowed_write_paths,omitzero" audit:"rule"`
		// The only hosts that programs and web_fetch reach, as example.com, *.example.com or
		// 10.1.2.3:8080; none if empty. At most 256.
		Network *[]string `json:"network,omitzero" audit:"rule"`
		// Names of tools that the agent does not have. At most 256.
		DisableTools *[]string `json:"disable_tools,omitzero" audit:"rule"`
		// How a call that needs an approval is decided: ask (see respond_permission) or
		// deny.
		Approvals *string `json:"approvals,omitzero" enum:"ask,deny" default:"deny" audit:"text"`
		// What becomes of the agent where its working directory is lost with a machine of a cluster: it waits for that machine, or
		// goes on at another one in an empty directory (fresh), and its model is told. An agent whose directory the machines share
		// goes on there. The default is the saved one.
		CwdLost *string `json:"cwd_lost,omitzero" enum:"wait,fresh" default:"wait" audit:"text"`
		// Limits of the agent and of the agents that it creates. Missing ones are the
		// configuration's.
		Limits *Limits `json:"limits,omitzero" audit:"rule"`
		// How the agent's turns run. Missing ones are the saved session's, or else the
		// configuration's. if_exists use does not compare them.
		Settings *TurnSettings `json:"settings,omitzero" audit:"rule"`
		// The parent of this agent. It must run.
		ParentAgentID *string `json:"parent_agent_id,omitzero" audit:"text"`
		// The kind of an agent of another make: one of list_kinds. The default is an agent of
		// nexus. A saved agent keeps its kind.
		Kind *string `json:"kind,omitzero" audit:"text"`
		// The program of that kind, looked up on PATH unless it has a slash, and its first
		// arguments. The default is the kind's. For people alone, as the next four are.
		Command *[]string `json:"command,omitzero" audit:"rule"`
		// Further arguments of the program.
		Args *[]string `json:"args,omitzero" audit:"rule"`
		// What the program finds as HOME: own, a directory of the agent's, or user, the
		// user's with all logins in it. The default is the kind's.
		Home *string `json:"home,omitzero" enum:"own,user" audit:"text"`
		// Whether the kernel confines the program and all that it starts. The default is the
		// kind's, or true under sandboxed.
		Sandbox *bool `json:"sandbox,omitzero" audit:"rule"`
		// The provider whose models the program reaches through the server, without a key.
		// The default is the kind's.
		Models *string `json:"models,omitzero" audit:"text"`
		// Which machine of a cluster is to have the agent. The default is the one that is asked, or that has the parent.
		Place *Placement `json:"place,omitzero" audit:"rule"`
		// What happens if an agent of that name runs: fail (AGENT_EXISTS), or use that
		// agent, if it matches the other parameters. use needs agent_id.
		IfExists *string `json:"if_exists,omitzero" enum:"fail,use" default:"fail" audit:"text"`
		// A message that is sent to the agent at once. It must not be empty.
		InitialMessage *string `json:"initial_message,omitzero" audit:"-"`
		// Variables for the programs that the agent runs. At most 64, of 131,072 bytes
		// together; names that decide how programs are found or loaded are refused.
		Env *map[string]string `json:"env,omitzero" audit:"-"`
		// Whether the answer waits until the turn of initial_message has ended.
		WaitForInitialResponse *bool `json:"wait_for_initial_response,omitzero" default:"false" audit:"-"`
	}

	// Limits are of the tokens and requests of models, and of the agent's process
	// with all that comes of it. What is missing is the configuration's, for set_limits
	// as it was; 0 is no limit.
	Limits struct {
		// Tokens of models, in all.
		Tokens *uint64 `json:"tokens,omitzero" max:"1125899906842624"`
		// Cost of models in all, in US dollars. A model whose price is not known is refused.
		CostUSD *float64 `json:"cost_usd,omitzero" min:"0" max:"1000000"`
		// Requests to models in a minute.
		RequestsPerMinute *uint64 `json:"requests_per_minute,omitzero" max:"1125899906842624"`
		// Tokens of models in a minute.
		TokensPerMinute *uint64 `json:"tokens_per_minute,omitzero" max:"1125899906842624"`

		// Memory of the process and its programs, in bytes; 0 or at least 2,097,152.
		MemoryBytes *uint64 `json:"memory_bytes,omitzero" max:"1125899906842624"`
		// Processes and threads.
		Processes *uint64 `json:"processes,omitzero" max:"1125899906842624"`
		// Open files of each process; 0 or at least 64.
		OpenFiles *uint64 `json:"open_files,omitzero" max:"1125899906842624"`
		// Processor time of one incarnation, in seconds.
		CPUSeconds *uint64 `json:"cpu_s,omitzero" max:"1125899906842624"`
		// Output of the process in a second, in bytes.
		OutputBytesPerSecond *uint64 `json:"output_bytes_per_s,omitzero" max:"1125899906842624"`
		// Run time of one turn, in seconds: default and bound of timeout_s.
		TurnSeconds *uint64 `json:"turn_s,omitzero" max:"86400"`

		// Agents: this one, those that it created, and theirs.
		Agents *uint64 `json:"agents,omitzero" max:"1125899906842624"`
	}

	// TurnSettings are how turns run. What is missing stays as it was.
	TurnSettings struct {
		// Model calls of one turn.
		MaxIterations *uint64 `json:"max_iterations,omitzero" min:"1" max:"1000000"`
		// Messages of one request to the model; older ones are left out.
		MaxMessages *uint64 `json:"max_messages,omitzero" min:"1" max:"1000000"`
		// How full the context may be, in percent, before old messages give way to a
		// summary; 0: never.
		CompactAt *uint64 `json:"compact_at,omitzero" max:"100"`
		// Time of one tool call, in seconds, whatever time it names; 0 is no such bound.
		ToolTimeoutS *float64 `json:"tool_timeout_s,omitzero" min:"0" max:"86400"`
		// Temperature of the model, from 0 to 2; -1 is as its service does.
		Temperature *float64 `json:"temperature,omitzero" min:"-1" max:"2"`
		// Tokens of one answer of the model; 0 is as its service does.
		MaxOutputTokens *uint64 `json:"max_output_tokens,omitzero" max:"10000000"`
		// How long a model reasons; empty is as the model does.
		ReasoningEffort *string `json:"reasoning_effort,omitzero" enum:",low,medium,high"`
		// The model, as PROVIDER/ID, that is asked in the place of one whose service is
		// down; empty is none.
		FallbackModel *string `json:"fallback_model,omitzero"`
	}

	// CreateAgentResult says where the agent answers.
	CreateAgentResult struct {
		AgentID string `json:"agent_id"`
		URL     string `json:"url"` // path, as in /agent/worker-1
		// Restored says that a saved session of that name was continued, Existing
		// that the agent ran already (IfExists); MessageCount is then the length of
		// its conversation.
		Restored     bool    `json:"restored,omitzero"`
		Existing     bool    `json:"existing,omitzero"`
		MessageCount *uint64 `json:"message_count,omitzero"`
		// NarrowedFrom is "yolo" if the saved session has that preset and the agent was
		// started as trusted, since no request grants yolo.
		NarrowedFrom string `json:"narrowed_from,omitzero"`
		// InitialRequestID is the request_id of the initial message.
		InitialRequestID string `json:"initial_request_id,omitzero"`
		// InitialResponse is the result that send would have returned, InitialError its
		// error. Either is there only if the call waited for it.
		InitialResponse *SendResult   `json:"initial_response,omitzero"`
		InitialError    *InitialError `json:"initial_error,omitzero"`
	}

	// InitialError says why the initial message has no answer. The agent
	// exists nevertheless.
	InitialError struct {
		Code    int    `json:"code"` // the JSON-RPC code that send would give
		Message string `json:"message"`
	}

	// AgentIDParams name an agent.
	AgentIDParams struct {
		// The agent's name.
		AgentID string `json:"agent_id" audit:"text"`
	}

	// DestroyAgentResult has Success false if there was no such agent.
	DestroyAgentResult struct {
		Success bool   `json:"success"`
		AgentID string `json:"agent_id"`
	}

	// ListAgentsResult is every agent of the server, or of its cluster, sorted by id.
	ListAgentsResult struct {
		Agents           []AgentInfo `json:"agents"`
		UnreachableNodes []string    `json:"unreachable_nodes,omitzero"` // machines whose agents are not among them
	}

	// ListKindsResult is every kind of agents of other makes, sorted by name.
	ListKindsResult struct {
		Kinds []KindInfo `json:"kinds"`
	}

	// KindInfo is one kind of agents of another make.
	KindInfo struct {
		Kind     string `json:"kind"`
		Protocol string `json:"protocol" enum:"acp,claude,codex,pi,nexus,pipe"`
		// Command is empty where each agent names its own.
		Command []string `json:"command"`
		Home    string   `json:"home" enum:"own,user"`
		Sandbox bool     `json:"sandbox"`
		Models  *string  `json:"models"` // null for none
		// Agents says that agents may create agents of this kind, too.
		Agents bool `json:"agents"`
		// Path is where the program is now; null where it is not found.
		Path *string `json:"path"`
	}

	// AgentInfo is one agent in a list. Times are RFC 3339, UTC.
	AgentInfo struct {
		AgentID string `json:"agent_id"`
		Node    string `json:"node,omitzero"` // the machine of a cluster that has it
		// TakenOverFrom is the machine that had it until it was lost or ended, if the agent was started here for the first time after that.
		TakenOverFrom  string  `json:"taken_over_from,omitzero"`
		CreatedAt      string  `json:"created_at"`
		MessageCount   uint64  `json:"message_count"`
		ShouldShutdown bool    `json:"should_shutdown"`
		State          string  `json:"state" enum:"stopped,starting,ready,busy,stopping,backoff,failed"` // SPEC §5.1
		PID            *int    `json:"pid"`                                                              // null while no process runs
		Incarnation    uint64  `json:"incarnation"`                                                      // counts from 1
		Restarts       uint64  `json:"restarts"`                                                         // after a crash, if the agent became ready
		IsTemp         bool    `json:"is_temp"`
		Kind           *string `json:"kind,omitzero"` // of an agent of another make
		ParentAgentID  *string `json:"parent_agent_id"`
		Provenance     string  `json:"provenance"` // who began it: ProvenanceUser or the id of an agent
		ChildCount     int     `json:"child_count"`
		// Model, PermissionLevel and Cwd are null until the child has said.
		Model           *string `json:"model"`
		PermissionLevel *string `json:"permission_level"`
		Cwd             *string `json:"cwd"`
		// CwdLost is fresh if create_agent said so. LostCwd is the directory that the agent has lost with a machine.
		CwdLost      *string           `json:"cwd_lost,omitzero"`
		LostCwd      *protocol.LostCwd `json:"lost_cwd,omitzero"`
		LastActionAt *string           `json:"last_action_at"` // null before the first turn
		// Queued is how many sends wait; RequestID is the one that runs.
		Queued    int     `json:"queued"`
		RequestID *string `json:"request_id"`
		// Waiting are the request_ids of those that wait, oldest first; missing if there are none. They are for people, as Pending.
		Waiting []string `json:"waiting,omitzero"`
		// LastRestartReason is that of the crash before the last restart (SPEC
		// §5.4); null before the first.
		LastRestartReason *string `json:"last_restart_reason"`
		// LastError is why the agent failed or crashed last.
		LastError *string `json:"last_error"`
		// PendingPermissions is how many calls wait for respond_permission.
		PendingPermissions int `json:"pending_permissions"`
		// Pending are these calls, oldest first, as in get_permissions; missing if
		// there are none. They are for people: an agent is told the number alone.
		Pending []protocol.PermissionRequest `json:"pending,omitzero"`
		// UnsavedPermissions are what the agent may do, if its session says more because
		// a change that narrowed them could not be saved. They are for people, too.
		UnsavedPermissions *protocol.Permissions `json:"unsaved_permissions,omitzero"`
		// MemoryBytes is what the agent's process has in memory, shared pages
		// included; null while none runs, and where the system does not tell.
		MemoryBytes *int64 `json:"memory_bytes"`
		// CPUSeconds is the processor time that this process has used, in seconds; null as
		// MemoryBytes.
		CPUSeconds *float64 `json:"cpu_s"`
		// TokensUsed and CostUsed are those of get_limits; null where they cannot be read.
		TokensUsed *uint64  `json:"tokens_used"`
		CostUsed   *float64 `json:"cost_usd_used"`
	}

	// DiscoverResult is an OpenRPC 1.3 document.
	DiscoverResult struct {
		OpenRPC    string           `json:"openrpc"` // its version
		Info       jsontext.Value   `json:"info"`
		Servers    []jsontext.Value `json:"servers"`
		Methods    []jsontext.Value `json:"methods"`
		Components jsontext.Value   `json:"components"`
	}

	// SuccessResult says only that the work was done.
	SuccessResult struct {
		Success bool `json:"success"`
	}

	// SendParams is one message to an agent.
	SendParams struct {
		// The message.
		Content string `json:"content"`
		// Makes the send idempotent, and names it for cancel. A UUID if missing.
		RequestID *string `json:"request_id,omitzero" min:"1" max:"128"`
		// Files that go with the message.
		Attachments *[]protocol.Attachment `json:"attachments,omitzero"`
		// What happens while another turn runs: wait behind it (queue), AGENT_BUSY
		// (reject), or abort it and go first (steer).
		WhenBusy *string `json:"when_busy,omitzero" enum:"queue,reject,steer" default:"queue"`
		// How long the turn may run, in seconds, rounded up to whole nanoseconds. The
		// agent's limits.turn_s is the default and the upper bound; without that there is
		// no limit.
		TimeoutS *float64 `json:"timeout_s,omitzero" min:">0" max:"86400" unit:"seconds"`
		// What happens if the agent's process crashes: CHILD_CRASHED (fail), or send the
		// message once more after the restart (retry).
		OnCrash *string `json:"on_crash,omitzero" enum:"fail,retry" default:"fail"`
		// What happens if the client leaves before the answer: the turn goes on
		// (continue), or ends (cancel).
		OnDisconnect *string `json:"on_disconnect,omitzero" enum:"continue,cancel" default:"continue"`
		// Where the message comes from; kept with the message.
		Source *string `json:"source,omitzero"`
		// The agent that wrote the message; kept with the message.
		SourceAgentID *string `json:"source_agent_id,omitzero"`
	}

	// CompactParams are those of compact.
	CompactParams struct {
		// Whether to keep only the last turn, and to accept a summary that is no shorter.
		Force *bool `json:"force,omitzero" default:"false" audit:"-"`
	}

	// NewSessionResult has the new conversation's id.
	NewSessionResult struct {
		SessionID string `json:"session_id"`
	}

	// ForkParams name an agent and the one that is to go on from its conversation.
	ForkParams struct {
		// The agent whose conversation is copied: one that runs, or that is saved.
		AgentID string `json:"agent_id" audit:"text"`
		// The new agent.
		NewAgentID string `json:"new_agent_id" audit:"text"`
		// The message before which the copy ends, by its place in get_messages: one of a user, from 0. Without it
		// the copy has all.
		Message *uint64 `json:"message,omitzero" audit:"-"`
	}
	// ForkResult is the new agent.
	ForkResult struct {
		AgentID      string `json:"agent_id"`
		URL          string `json:"url"`
		MessageCount uint64 `json:"message_count"`
		// NarrowedFrom is the preset that the saved session had, if the new agent has less.
		NarrowedFrom string `json:"narrowed_from,omitzero"`
	}

	// SendResult is the outcome of a turn. A cancelled one has RequestID and
	// Cancelled alone.
	SendResult struct {
		Content    *string             `json:"content,omitzero"`
		RequestID  string              `json:"request_id"`
		StopReason string              `json:"stop_reason,omitzero" enum:"completed,max_iterations,max_tokens,content_filter"`
		Usage      *protocol.TurnUsage `json:"usage,omitzero"`
		Cancelled  bool                `json:"cancelled,omitzero"`
		// Truncated says that Content is only the head of the answer.
		Truncated bool `json:"truncated,omitzero"`
		// Replayed says that the turn ended before this request came.
		Replayed bool `json:"replayed,omitzero"`
		// Attempt says how often it was sent to the agent's process, if not once.
		Attempt int `json:"attempt,omitzero"`
	}

	// CancelParams name the send to cancel.
	CancelParams struct {
		// The request_id of the send, of the task, or globally of the run_plan.
		RequestID string `json:"request_id"`
	}

	// CancelResult has Cancelled false and a Reason if no send of that id is known,
	// or it did not end as cancelled.
	CancelResult struct {
		Cancelled bool   `json:"cancelled"`
		RequestID string `json:"request_id"`
		Reason    string `json:"reason,omitzero"` // not_found_or_completed
	}

	// GetTokensResult is how the context window is used, in tokens.
	GetTokensResult protocol.ContextTokens

	// UndoParams say what is taken back.
	UndoParams struct {
		// Take back what the turn's tools changed in files, too.
		Files *bool `json:"files,omitzero" default:"false" audit:"-"`
	}
	// GetContextResult describes the conversation.
	GetContextResult struct {
		MessageCount uint64 `json:"message_count"`
		// SystemPrompt says whether there is one.
		SystemPrompt           bool   `json:"system_prompt"`
		SessionID              string `json:"session_id"`
		Model                  string `json:"model"`
		Provider               string `json:"provider"`
		Cwd                    string `json:"cwd"`
		PermissionLevel        string `json:"permission_level"`
		HaltedAtIterationLimit bool   `json:"halted_at_iteration_limit"`
		// Usage is what the conversation has used so far.
		Usage protocol.SessionUsage `json:"usage"`
		// Cost is the price of that in US dollars, at the prices of the configuration; nil
		// where one of them is not known. The offline model costs nothing.
		Cost *float64 `json:"cost"`
	}

	// GetMessagesParams select a page of the conversation.
	GetMessagesParams struct {
		// Index of the first message of the page.
		Offset *uint64 `json:"offset,omitzero" default:"0"`
		// How many messages at most; as many as fit one answer if missing.
		Limit *uint64 `json:"limit,omitzero"`
		// Whether to list all that was said since the conversation began: the messages that gave way to summaries,
		// and no summaries.
		IncludeCompacted *bool `json:"include_compacted,omitzero" default:"false" audit:"-"`
	}

	// GetMessagesResult is a page. It may be shorter than what was asked for;
	// the next one starts at Offset plus its length.
	GetMessagesResult struct {
		Messages []Message `json:"messages"`
		Total    uint64    `json:"total"`
		Offset   uint64    `json:"offset"`
	}

	// Message is one of a conversation.
	Message protocol.PageMessage

	// GetModelResult is the model of the turns to come.
	GetModelResult struct {
		Model     string `json:"model"`
		Provider  string `json:"provider"`
		Reasoning bool   `json:"reasoning"` // whether the model shows its reasoning
	}

	// UpdatedResult says only that the change was made.
	UpdatedResult struct {
		Updated bool `json:"updated"`
	}

	// ListToolsResult is the tools that the model may call.
	ListToolsResult struct {
		Tools []Tool `json:"tools"`
	}

	// Tool is one tool.
	Tool struct {
		Name        string         `json:"name"`
		Description string         `json:"description"`
		InputSchema jsontext.Value `json:"input_schema"` // a JSON Schema
	}

	// SetModelParams name a model.
	SetModelParams struct {
		// The model's name, as list_models has it.
		Model string `json:"model" audit:"text"`
	}

	// SetModelResult names the model that is set now.
	SetModelResult struct {
		Updated bool   `json:"updated"`
		Model   string `json:"model"`
	}
)
