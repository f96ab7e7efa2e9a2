package cluster

import (
	"fmt"
	"regexp"

	"go.uber.org/zap"
)

// Options say which machine this is.
type Options struct {
	// Machine is its name: letters, digits, - and _, at most 64.
	Machine string
	// Replicas is on how many machines what they agree on is kept: 3, or fewer if there are fewer.
	Replicas int
	// Labels say what the machine is good for.
	Labels map[string]string
	// Version is that of the program.
	Version string
	Log     *zap.Logger
}

// Load is what a machine has, and what of it is taken.
type Load struct {
	Processors  int   `json:"processors"`
	MemoryBytes int64 `json:"memory_bytes"`
	FreeBytes   int64 `json:"free_bytes"`
	Agents      int   `json:"agents"`
}

const (
	maxName = 64
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

// check says what is wrong with the options.
func (o *Options) check() error {
	for label, value := range o.Labels {
		if !nameForm.MatchString(label) || len(value) > maxName {
			return fmt.Errorf("a label is a name of letters, digits, - and _, and a value of at most %d bytes: %.80q", maxName, label+"="+value)
		}
	}
	if o.Replicas < 1 || o.Replicas > maxReplicas {
		return fmt.Errorf("what the machines agree on is kept on 1 to %d of them, not on %d", maxReplicas, o.Replicas)
	}
	return CheckName("machine", o.Machine)
}
