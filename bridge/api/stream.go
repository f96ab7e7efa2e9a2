package api

// The notifications of a streaming send (SPEC §6.4) and of a streaming task (SPEC §6.7), in their order. They are
// JSON-RPC notifications whose method is the constant's value.
const (
	StreamStart   = "stream_start"
	StreamData    = "stream_data"
	StreamRestart = "stream_restart" // where a send is sent again, or a task has another turn
	StreamEnd     = "stream_end"
)

// The notifications of a streaming run_plan (SPEC §6.7). They are JSON-RPC
// notifications whose method is the constant's value.
const (
	PlanStart = "plan_start"
	TaskStart = "task_start"
	TaskEnd   = "task_end"
	PlanEnd   = "plan_end"
)

// Notification is one row of what a stream says before its response.
type Notification struct {
	Name string
	// Params is the zero value of the type of its parameters.
	Params any
}

var (
	sendStream = []Notification{
		{StreamStart, StreamStartParams{}},
		{StreamData, StreamDataParams{}},
		{StreamRestart, StreamRestartParams{}},
		{StreamEnd, StreamEndParams{}},
	}
	taskStream = []Notification{
		{StreamStart, StreamStartParams{}},
		{StreamData, TaskDataParams{}},
		{StreamRestart, StreamRestartParams{}},
		{StreamEnd, StreamEndParams{}},
	}
	planStream = []Notification{
		{PlanStart, PlanStartParams{}}, {TaskStart, TaskStartParams{}}, {TaskEnd, TaskEndParams{}}, {PlanEnd, PlanEndParams{}},
	}
)

type (
	// StreamStartParams open a stream. TaskID is the send's request_id.
	StreamStartParams struct {
		StreamID string `json:"stream_id"`
		TaskID   string `json:"task_id"`
	}

	// StreamDataParams carry a piece of the answer. Sequence counts from 1.
	StreamDataParams struct {
		StreamID string `json:"stream_id"`
		Chunk    string `json:"chunk"`
		Sequence uint64 `json:"sequence"`
	}

	// TaskDataParams carry what an agent says and does for a task: exactly one of Chunk, Tool and
	// Progress. Sequence counts from 1.
	TaskDataParams struct {
		StreamID string `json:"stream_id"`
		// A piece of what the model says; "" for the others.
		Chunk    string `json:"chunk"`
		Sequence uint64 `json:"sequence"`
		// A call of a tool that begins or has ended.
		Tool *TaskTool `json:"tool,omitzero"`
		// What else happens: the turn has begun; the model's service failed and is asked again, or another
		// model in its place; old messages give way to a summary.
		Progress string `json:"progress,omitzero" enum:"started,retry,fallback,compaction_start"`
	}
	// TaskTool is a call of a tool.
	TaskTool struct {
		ToolID   string `json:"tool_id"`
		ToolName string `json:"tool_name,omitzero"` // where it begins
		Status   string `json:"status" enum:"started,ended"`
		IsError  bool   `json:"is_error,omitzero" wire:"default"` // it failed, was refused or aborted
	}

	// StreamRestartParams say that the chunks before are void: the answer begins
	// anew. Attempt counts from 1.
	StreamRestartParams struct {
		StreamID string `json:"stream_id"`
		Attempt  int    `json:"attempt"`
	}

	// StreamEndParams close a stream.
	StreamEndParams struct {
		StreamID    string `json:"stream_id"`
		TotalChunks uint64 `json:"total_chunks"`
	}

	// PlanStartParams open the stream of a run. Completed are the ids of the tasks
	// that have ended before; no other notification tells of them.
	PlanStartParams struct {
		PlanRunID string   `json:"plan_run_id"`
		Tasks     int      `json:"tasks"`
		Completed []string `json:"completed"`
	}

	// TaskStartParams say who has begun a task.
	TaskStartParams struct {
		PlanRunID string `json:"plan_run_id"`
		TaskID    string `json:"task_id"`
		AgentID   string `json:"agent_id"`
		RequestID string `json:"request_id"`
	}

	// TaskEndParams say how a task ended.
	TaskEndParams struct {
		PlanRunID string `json:"plan_run_id"`
		PlanTaskResult
	}

	// PlanEndParams close the stream; the response follows.
	PlanEndParams struct {
		PlanRunID string `json:"plan_run_id"`
		Status    string `json:"status" enum:"completed,failed,cancelled,timed_out"`
	}
)
