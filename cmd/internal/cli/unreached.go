package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/client"
)

// Unreached says that what some machines of a cluster have is missing in what is shown, as they are lost or did not answer: those are the
// unreachable_nodes of an answer. It is "" if there are none.
func Unreached(machines []string) string {
	switch len(machines) {
	case 0:
		return ""
	case 1:
		return notReached(machines) + ": what it has is missing here"
	default:
		return notReached(machines) + ": what they have is missing here"
	}
}

func notReached(machines []string) string {
	if len(machines) == 1 {
		return "the machine " + machines[0] + " is not reached"
	}
	return "the machines " + strings.Join(machines, ", ") + " are not reached"
}

// NoteUnreached is Unreached on stderr.
func (p *printer) NoteUnreached(machines []string) {
	if text := Unreached(machines); text != "" {
		p.note("%s", text)
	}
}

// Stale says that what is shown may be old, as the machine says of its answers: since is [client.Client.Stale]. It is "" if it is not.
func Stale(since string) string {
	switch since {
	case "":
		return ""
	case api.StaleNever:
		return "the machine has not reached the others of its cluster since it started: it knows nothing of them yet"
	default:
		return "the machine is cut off from the others of its cluster: this may be old, as of " + since
	}
}

// Incomplete is Unreached and Stale in one line: the machines are the unreachable_nodes of an answer, since is when it is of.
func Incomplete(machines []string, since string) string {
	unreached, stale := Unreached(machines), Stale(since)
	if unreached != "" && stale != "" {
		return unreached + "; " + stale
	}
	return unreached + stale
}

// noteStale is Stale on stderr.
func (p *printer) noteStale(c *client.Client) {
	if text := Stale(c.Stale()); text != "" {
		p.note("%s", text)
	}
}

// unreachedError is the error of something that no machine has which is reached, while others are not.
type unreachedError struct {
	missing  error
	machines []string // none where nobody knows which
}

func (e *unreachedError) Error() string {
	if len(e.machines) == 0 {
		return fmt.Sprintf("%v; but the other machines of the cluster are not reached, and one of them may have it", e.missing)
	}
	has := "and may have it"
	if len(e.machines) > 1 {
		has = "and one of them may have it"
	}
	return fmt.Sprintf("%v; but %s, %s", e.missing, notReached(e.machines), has)
}

func (e *unreachedError) Unwrap() error { return e.missing }

// Missing is the error of something that was not found among what the machines have: missing, unless some of them are not reached.
func Missing(missing error, machines []string) error {
	if len(machines) == 0 {
		return missing
	}
	return &unreachedError{missing, machines}
}

// MissingAt is Missing for what a server has answered, which may be cut off from all others.
func MissingAt(c *client.Client, missing error, machines []string) error {
	if len(machines) == 0 && c.Stale() != "" {
		return &unreachedError{missing: missing}
	}
	return Missing(missing, machines)
}

// missingNow is Missing for what a server has not found, which does not tell what machines it did not reach.
func missingNow(ctx context.Context, c *client.Client, missing error) error {
	agents, err := client.Do(ctx, c, "", api.ListAgents, api.None{})
	if err != nil { // as by a key for one agent
		return missing
	}
	return MissingAt(c, missing, agents.UnreachableNodes)
}

// isUnreached reports whether an error is one of unreachedError.
func isUnreached(err error) bool {
	_, ok := errors.AsType[*unreachedError](err)
	return ok
}
