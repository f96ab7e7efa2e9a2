package cluster

import (
	"fmt"
	"regexp"
	"unicode/utf8"

	"go.uber.org/zap"

	"nexus.internal/protocol/format"
)

// Options say which machine this is.
type Options struct {
	// Cluster is its name and Machine this machine's: letters, digits, - and _, at most 64. Several clusters may use one NATS.
	Cluster, Machine string
	// Replicas is on how many servers of NATS what the machines agree on is kept: 3, or fewer if there are fewer. A NATS of one server keeps it once.
	Replicas int
	// Members say which machines there are to be; nil where the servers of NATS are others' and none is removed.
	Members Members
	// Labels say what the machine is good for, but for what [Node.Label] has changed.
	Labels map[string]string
	// MaxAgents is how many agents it takes, as it tells the others; 0 for no bound.
	MaxAgents int
	// Shared are the directories that other machines have, too: absolute, at most [MaxShared].
	Shared []string
	// File keeps what is said of this machine while it runs, as [Node.Drain] and [Node.Label] do, over a restart; "" keeps nothing. Its directory is made.
	File string
	// Agents counts those that it has; nil counts none.
	Agents Counter
	// Version is that of the program.
	Version string
	// Later takes what is met of later formats; nil takes nothing.
	Later *format.Later
	Log   *zap.Logger
}

const (
	maxName   = 64
	maxLabels = 32
	// MaxShared is how many directories a machine may share with others, as it tells them each second.
	MaxShared = 64
	// maxReplicas is what JetStream can do.
	maxReplicas = 5
)

var nameForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$`)

// CheckName says what is wrong with the name of a cluster or of a machine.
func CheckName(what, name string) error {
	if !nameForm.MatchString(name) {
		return fmt.Errorf("the name of a %s has letters, digits, - and _, and at most %d of them: %.80q", what, maxName, name)
	}
	return nil
}

// CheckLabel says what is wrong with a label.
func CheckLabel(label, value string) error {
	if !nameForm.MatchString(label) || len(value) > maxName || !utf8.ValidString(value) {
		return fmt.Errorf("a label is a name of letters, digits, - and _, and a value of at most %d bytes: %.80q", maxName, label+"="+value)
	}
	return nil
}

// ErrLabels says that a machine would have too many labels.
var ErrLabels = fmt.Errorf("a machine has at most %d labels", maxLabels)

func checkCount(labels map[string]string) error {
	if len(labels) > maxLabels {
		return fmt.Errorf("%w, not %d", ErrLabels, len(labels))
	}
	return nil
}

// check says what is wrong with the options.
func (o *Options) check() error {
	if err := checkCount(o.Labels); err != nil {
		return err
	}
	if len(o.Shared) > MaxShared {
		return fmt.Errorf("a machine shares at most %d directories, not %d", MaxShared, len(o.Shared))
	}
	for label, value := range o.Labels {
		if err := CheckLabel(label, value); err != nil {
			return err
		}
	}
	if o.Replicas < 1 || o.Replicas > maxReplicas {
		return fmt.Errorf("what the machines agree on is kept on 1 to %d of them, not on %d", maxReplicas, o.Replicas)
	}
	if err := CheckName("cluster", o.Cluster); err != nil {
		return err
	}
	return CheckName("machine", o.Machine)
}

// beats is where machines say what they are.
func (o Options) beats() string { return "nexus." + o.Cluster + ".machines" }

// claims is where machines tell of claims.
func (o Options) claims() string { return "nexus." + o.Cluster + ".claimed" }

// at is where a machine takes connections.
func (o Options) at(machine string) string { return "nexus." + o.Cluster + ".at." + machine }
