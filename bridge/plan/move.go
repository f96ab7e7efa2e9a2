package plan

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"go.uber.org/zap"

	"nexus.internal/bridge/agents"
	"nexus.internal/bridge/api"
	"nexus.internal/bridge/rpc"
	"nexus.internal/protocol"
	"nexus.internal/protocol/safefile"
)

// Others are the other machines of a cluster, as far as runs are concerned. It is safe for concurrent use, and answers within a bounded time.
type Others interface {
	// GiveRun has a machine write the record of a run that this one has. The error is NODE_UNREACHABLE, or what that machine has answered.
	GiveRun(ctx context.Context, machine, run string, record io.Reader) error
	// RunDigest is what tells the run that a machine has of that id from others. The errors are those of GiveRun.
	RunDigest(ctx context.Context, machine, run string) (string, error)
}

// machineOf is the other machine that has all agents which a run names; "" if this one has them, or nobody has any. They cannot be of several.
func (r *Runner) machineOf(p api.RunPlanParams) (machine string, err error) {
	if r.o.Claims == nil {
		return "", nil
	}
	var of, told []string
	for _, id := range protocol.Value(p.Agents) {
		machine, there := agents.Machine(r.o.Agents, id)
		if !there {
			continue
		}
		told = append(told, id+" is on the machine "+machine)
		if !slices.Contains(of, machine) {
			of = append(of, machine)
		}
	}
	switch {
	case len(of) > 1:
		return "", api.Invalid("agents", "those of a run are on one machine, and %s: name agents of one machine, or bring these together, and send the same again "+
			"(while each other machine drains, by nexus cluster drain MACHINE, all that can move come to the one that is left)", strings.Join(told, ", "))
	case len(of) == 0 || of[0] == r.o.Claims.Self():
		return "", nil
	}
	return of[0], nil
}

// elsewhereNew is a *rpc.ClaimedError for a run of which there is no record here, if another machine has it, or has its agents and nobody has it.
func (r *Runner) elsewhereNew(ctx context.Context, id string, p api.RunPlanParams) error {
	if r.o.Claims == nil || p.Agents == nil || r.recorded(id) {
		return nil
	}
	machine, several := r.machineOf(p)
	if machine == "" && several == nil {
		return nil
	}
	owner, err := r.o.Claims.RunOwner(ctx, id)
	if err != nil {
		return agents.NoQuorum(err, "which machine is to have the run %s is not agreed on", id)
	}
	if err := r.elsewhere(id, owner); err != nil {
		return err
	}
	if several != nil {
		return several
	}
	if owner != "" { // nothing of it is here
		if err := r.o.Claims.ReleaseRun(ctx, id); err != nil {
			return agents.NoQuorum(err, "which machine is to have the run %s is not agreed on", id)
		}
	}
	return agentsElsewhere(id, *p.Agents, machine)
}

func (r *Runner) recorded(id string) bool {
	_, err := os.Lstat(r.record(id))
	return !errors.Is(err, fs.ErrNotExist)
}

// agentsElsewhere is the error of a run that is to be of another machine, as that one has its agents.
func agentsElsewhere(id string, ids []string, machine string) error {
	e := &rpc.ClaimedError{Agent: ids[0], Run: id, Machine: machine}
	return &api.Error{
		Kind: api.KindNodeUnreachable, Details: fmt.Sprintf("%v, and nothing was accepted", e), Err: &rpc.MovedError{Agent: e.Agent, Machine: machine, Err: e},
		Suggestions: []string{"Send it again: that machine answers."},
	}
}

// stays sees that a run can go on here. If another machine has its agents by now, that one has the run, and the error is as of handOver. After an error
// the record is closed.
func (r *Runner) stays(ctx context.Context, id string, p api.RunPlanParams, record *Record) error {
	machine, err := r.machineOf(p)
	switch {
	case err != nil:
		return errors.Join(err, r.discard(ctx, id, record))
	case machine == "":
		return nil
	case !record.Resumed:
		return errors.Join(agentsElsewhere(id, *p.Agents, machine), r.discard(ctx, id, record))
	}
	record.Close()
	return r.handOver(ctx, id, *p.Agents, machine)
}

// handOver makes a run that is to go on that of the machine which has its agents by now: its record first, then the claim. Whoever claims it between finds the record
// there, as nobody else claims a run whose agents another machine has. The lock of its id is held. The error is a *rpc.ClaimedError if that was done.
func (r *Runner) handOver(ctx context.Context, id string, ids []string, machine string) error {
	record, err := openRegular(r.record(id), os.O_RDONLY)
	if err != nil {
		return err
	}
	defer record.Close()
	ctx = context.WithoutCancel(ctx)
	if err := r.o.Others.GiveRun(ctx, machine, id, record); err != nil {
		return err
	}
	if err := r.o.Claims.ReleaseRun(ctx, id); err != nil {
		return agents.NoQuorum(err, "which machine is to have the run %s is not agreed on", id)
	}
	if err := os.Remove(r.record(id)); err != nil {
		r.o.Log.Warn("remove the record of a run that another machine has by now", zap.String("plan_run_id", id), zap.Error(err))
	}
	r.o.Log.Info("the run of a plan is another machine's, which has its agents", zap.String("plan_run_id", id), zap.String("machine", machine))
	return agentsElsewhere(id, ids, machine)
}

// Receive writes the record of a run that another machine has, and is to give to this one. What was here of that id is replaced.
func (r *Runner) Receive(ctx context.Context, id, from string, record io.Reader) error {
	if r.o.Claims == nil || !api.ValidPlanID(id) {
		return api.Invalid("plan_run_id", "is none that this server can have")
	}
	defer r.locks.Lock(id)()
	owner, err := r.o.Claims.RunOwner(ctx, id)
	switch {
	case err != nil:
		return agents.NoQuorum(err, "whether the machine may give the run %s is not known", id)
	case owner != from || r.get(id) != nil:
		return &api.Error{
			Kind: api.KindNodeUnreachable, Details: fmt.Sprintf("the run %s is not the machine %s's to give, and nothing was accepted", id, from), Suggestions: []string{"Send it again."},
		}
	}
	if err := safefile.Mkdir(r.o.Dir); err != nil {
		return unrecorded("make the directory", err)
	}
	file, err := safefile.Renew(r.record(id), func(f *os.File) error {
		_, err := io.Copy(f, io.LimitReader(record, maxRecord+1))
		if err != nil {
			return unrecorded("write it", err)
		}
		_, _, _, err = newRecord(id, f).replay(ctx)
		return err
	})
	if err != nil {
		return err
	}
	return file.Close()
}

// Digest is what tells the run that is recorded here under that id from others of it.
func (r *Runner) Digest(id string) (string, error) {
	if !api.ValidPlanID(id) {
		return "", api.Invalid("plan_run_id", "no run of that id is recorded")
	}
	digest, err := planOf(context.Background(), r.record(id))
	if errors.Is(err, fs.ErrNotExist) {
		return "", api.Invalid("plan_run_id", "no run of that id is recorded")
	}
	return digest, err
}
