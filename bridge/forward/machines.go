package forward

import (
	"context"
	"net"
	"time"
)

// State is whether a machine is there.
type State string

// States of a machine.
const (
	Up   State = "up"
	Lost State = "lost" // it was not heard of for a while
	Left State = "left" // it has ended
)

// Machine is one of the cluster, as it is known here.
type Machine struct {
	Name  string
	State State
	// Draining says that it is to have no agents: none is placed on it.
	Draining bool
	Labels   map[string]string // not to be changed
	Version  string            // of nexus
	Load     Load
	Claims   int // how many agents and saved sessions it has, by what the machines agreed on
}

// Load is what a machine has, and what of it is taken.
type Load struct {
	Processors  int
	MemoryBytes int64
	FreeBytes   int64 // of MemoryBytes
	Agents      int   // that run
	MaxAgents   int   // that it takes; 0 for no bound
}

// Machines are the machines of a cluster, seen from one of them. It is safe for concurrent use.
type Machines interface {
	// Self is the name of this machine.
	Self() string
	// All are the machines that are known here, this one too, by name.
	All() []Machine
	// Owner is the machine that has claimed an agent, as it is known here, which may be a moment old; ok is false if
	// none has. It may be a machine that is lost. It asks nobody and does not wait.
	Owner(agent string) (machine string, ok bool)
	// Owned are the agents that this machine has claimed, in any order, as it is known here.
	Owned() []string
	// Claim makes an agent this machine's if no machine has it, and returns whose it is now. If it is this machine's
	// already, that is no error. After an error it is not known whose it is: the same call again may say. It
	// returns within a bounded time. Once it has returned, Owner says the same here.
	Claim(ctx context.Context, agent string) (owner string, err error)
	// Release gives up this machine's claim; it is no error if it has none.
	Release(ctx context.Context, agent string) error
	// Cut says why a majority of the machines is not reached, and since when what is known here may be old, zero if none was reached yet; nil while one is.
	// It asks nobody and does not wait.
	Cut() (since time.Time, err error)
	// Dial connects to what a machine's Listen returns. It fails within a bounded time if the machine is not reached. The
	// connection ends when the machine is not heard of any more.
	Dial(ctx context.Context, machine string) (net.Conn, error)
	// Listen takes the connections of other machines, and of nobody else: whatever comes by them is believed. It is called once.
	Listen() (net.Listener, error)
}
