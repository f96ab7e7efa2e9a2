package plan

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"nexus.internal/bridge/agents"
	"nexus.internal/bridge/api"
	"nexus.internal/bridge/rpc"
)

// Claims say which machine of a cluster has a run. They are safe for concurrent use, and answer within a bounded time.
type Claims interface {
	Self() string
	// ClaimRun makes a run this machine's if no machine has it, and returns whose it is now.
	ClaimRun(ctx context.Context, run string) (machine string, err error)
	// RunOwner is the machine that has a run, "" if none has.
	RunOwner(ctx context.Context, run string) (machine string, err error)
	// ReleaseRun gives up this machine's run; it is no error if it has not.
	ReleaseRun(ctx context.Context, run string) error
}

// claim makes a run that is asked for this machine's, unless it is to be another one's. The error is a *rpc.ClaimedError, NO_QUORUM or of the agents.
func (r *Runner) claim(ctx context.Context, id string, p api.RunPlanParams) error {
	if err := r.elsewhereNew(ctx, id, p); err != nil {
		return err
	}
	return r.take(ctx, id)
}

// take makes a run this machine's. The error is a *rpc.ClaimedError, or NO_QUORUM.
func (r *Runner) take(ctx context.Context, id string) error {
	if r.o.Claims == nil {
		return nil
	}
	machine, err := r.o.Claims.ClaimRun(ctx, id)
	if err != nil {
		return agents.NoQuorum(err, "which machine is to have the run %s is not agreed on", id)
	}
	return r.elsewhere(id, machine)
}

// release gives up runs of which nothing is left here. If that fails, they are this machine's still, which makes them anew when it is asked to.
func (r *Runner) release(ctx context.Context, ids ...string) {
	if r.o.Claims == nil {
		return
	}
	for _, id := range ids {
		_ = r.o.Claims.ReleaseRun(context.WithoutCancel(ctx), id)
	}
}

// releaseUnrecorded gives up a run of which there is no record here.
func (r *Runner) releaseUnrecorded(ctx context.Context, id string) {
	if _, err := os.Lstat(r.record(id)); errors.Is(err, fs.ErrNotExist) {
		r.release(ctx, id)
	}
}

// discard removes the record of a run in which nothing was begun, and gives the run up.
func (r *Runner) discard(ctx context.Context, id string, record *Record) error {
	err := record.Discard()
	r.releaseUnrecorded(ctx, id)
	return err
}

// Elsewhere is a *rpc.ClaimedError if another machine has that run, and nil if none has. This one has no record of it. Without a majority of the machines it
// is NO_QUORUM.
func (r *Runner) Elsewhere(ctx context.Context, id string) error {
	if r.o.Claims == nil || !api.ValidPlanID(id) {
		return nil
	}
	machine, err := r.o.Claims.RunOwner(ctx, id)
	if err != nil {
		return agents.NoQuorum(err, "whether another machine has the run %s is not known", id)
	}
	return r.elsewhere(id, machine)
}

func (r *Runner) elsewhere(id, machine string) error {
	if machine == "" || machine == r.o.Claims.Self() {
		return nil
	}
	e := &rpc.ClaimedError{Run: id, Machine: machine}
	return &api.Error{
		Kind: api.KindNodeUnreachable, Details: fmt.Sprintf("%v, and nothing was accepted", e), Err: e, Suggestions: []string{"Send it again: that machine answers."},
	}
}
