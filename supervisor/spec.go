package supervisor

import "time"

// Spec is what it takes to run one agent. It is opaque to this package: the
// launcher of its kind makes a process of it.
type Spec struct {
	// ID is the agent's durable name, unique in a Supervisor.
	ID string
	// Kind selects the launcher; "" is the default one.
	Kind string
	// Argv is the program and its arguments for the first incarnation.
	Argv []string
	// Resume is Argv for all later incarnations: the one that insists on the
	// saved conversation. Nil means Argv.
	Resume []string
	// Env is the child's whole environment as KEY=VALUE; nil means empty.
	Env []string
	// Dir is the child's working directory; "" means the supervisor's.
	Dir string
	// HostCalls says that the child may ask for other agents by host_call; one
	// that may not is answered with an error.
	HostCalls bool
	// Labels travel with the agent into Info, unread by this package.
	Labels Labels
	// StartTimeout bounds the time to ready; 0 means DefaultStartTimeout.
	StartTimeout time.Duration
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
	// Ancestors are the agents that it comes from, its creator first, with the limits that
	// its processes share with theirs: memory, processes and time on the processors.
	Ancestors []Share
}

// Share is what the processes of an agent and of those that it created may take together.
type Share struct {
	Agent  string
	Limits Limits
}

// Defaults of a Spec (SPEC §5).
const (
	DefaultStartTimeout = 10 * time.Second
	DefaultAbortGrace   = 5 * time.Second
	DefaultPingEvery    = 15 * time.Second
	DefaultPingTimeout  = 15 * time.Second
	DefaultQueueLimit   = 64
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
	// LimitsDigest and EnvDigest stand for what it was started with.
	LimitsDigest, EnvDigest string
	// NarrowedFrom is the saved preset, if the agent got a lower one; "" for none.
	NarrowedFrom string
	// MaxAgents bounds the agents of its tree, itself included: 0 is no bound, nil the
	// default.
	MaxAgents *uint64
}
