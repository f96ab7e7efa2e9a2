package supervisor

import (
	"time"

	"nexus.internal/protocol"
)

// Spec is one agent, of whatever program it is made: what it is, what it may do, and the
// bounds within which it runs. It is made once. The launcher of its kind makes processes of
// it; what this package reads itself stands below Host.
type Spec struct {
	// ID is the agent's durable name, unique in a Supervisor.
	ID string
	// Program is the program of another make that the agent runs as; nil for none. A saved session
	// has it, too.
	Program *protocol.AgentProgram
	// StartTimeout bounds the time of each launch to ready; 0 means StartTimeout.
	StartTimeout time.Duration
	// Cwd is the working directory, absolute; "" means the saved one, else the supervisor's.
	Cwd string
	// Model and Provider are of its first process; "" means the saved one, else the
	// configuration's.
	Model    string
	Provider string
	// Settings are how its turns run, as far as they were asked for.
	Settings protocol.TurnSettings
	// SystemPrompt replaces the layered default, also if it is empty; nil does not.
	SystemPrompt *string
	// Permissions are what was asked for. With its DisabledTools, WritePaths or Network, even empty
	// ones, it is more than a preset.
	Permissions protocol.Permissions
	// Ceiling is what the agent's permissions cannot exceed: those of its parent. Nil is no
	// bound.
	Ceiling *protocol.Permissions
	// Env are variables of its own, for its programs too.
	Env map[string]string
	// Fresh says that no earlier agent of that name goes on here: what the Store keeps of one
	// is removed. Else its processes go on with what is saved.
	Fresh bool
	// Labels travel with the agent into Info. Launchers read them, this package does not.
	Labels Labels
	// Ancestors are the agents above Labels.Parent, the nearest first, of one that goes on.
	Ancestors []string

	// ModelSocket is the path of the unix socket by which the agent reaches its models, and
	// Shares are the agents that it comes from, its creator first, with the limits that its
	// processes share with theirs: memory, processes and time on the processors. The launcher
	// of package broker sets both at each launch.
	ModelSocket string
	Shares      []Share

	// Host answers what the child asks for by host_call. Nil refuses all.
	Host Host
	// AbortGrace is how long a cancel may take until the child counts as
	// wedged and is killed; 0 means DefaultAbortGrace.
	AbortGrace time.Duration
	// PingEvery is how long a child may answer nothing until it is pinged, four
	// times as long if nothing is asked of it; 0 means DefaultPingEvery.
	PingEvery time.Duration
	// PingTimeout is how long it may leave a ping without an answer until it
	// counts as wedged and is killed; 0 means DefaultPingTimeout.
	PingTimeout time.Duration
	// QueueLimit is how many prompts may wait; 0 means DefaultQueueLimit.
	QueueLimit int
	// Policy decides on restarts; the zero value is the default policy.
	Policy Policy
	// Limits bound what the agent may take, and what it and those created for it may take
	// together.
	Limits Limits
	// MaxAgents bounds the agents of its tree, itself included, for who starts them: 0 is no
	// bound, nil the default.
	MaxAgents *uint64
}

// Share is what the processes of an agent and of those that it created may take together.
type Share struct {
	Agent  string
	Limits Limits
}

// StartTimeout bounds the time of each launch to ready where a Spec names no other.
const StartTimeout = 10 * time.Second

// Defaults of a Spec (SPEC §5).
const (
	DefaultAbortGrace  = 5 * time.Second
	DefaultPingEvery   = 15 * time.Second
	DefaultPingTimeout = 15 * time.Second
	DefaultQueueLimit  = 64
)

// Labels are what is kept with an agent for whoever started it.
type Labels struct {
	// Parent is the agent for which it was created; "" for none.
	Parent string
	// Provenance is the agent that began it, also where that is gone; "" for a person.
	Provenance string
	// Depth is how many agents are above it.
	Depth uint64
	// Approvals says what becomes of calls that need one; "" if nobody said it.
	Approvals string
	// CwdLost says what becomes of it where its directory is lost with a machine; "" if nobody said it.
	CwdLost string
	// LostCwd is the directory that it has lost so; nil for none.
	LostCwd *protocol.LostCwd
	// EnvDigest stands for the variables that it was started with.
	EnvDigest string
	// Cwd is where it was started, absolute, without symbolic links: where it works until
	// its process says where. "" if that is not known.
	Cwd string
	// NarrowedFrom is the saved preset, if the agent got a lower one; "" for none.
	NarrowedFrom string
}
