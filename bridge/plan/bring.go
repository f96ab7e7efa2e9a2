package plan

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"nexus.internal/bridge/agents"
	"nexus.internal/bridge/api"
	"nexus.internal/bridge/rpc"
	"nexus.internal/protocol/safefile"
)

// Brought says what became of the record of a run of another home.
type Brought struct {
	PlanRunID string `json:"plan_run_id"`
	Outcome   string `json:"outcome"` // as that of an [agents.Brought]
	Reason    string `json:"reason,omitempty"`
}

// Bring copies the records of runs, and the results of tasks, that another home has in its directory of plans, which nobody writes to: those that are not
// here and that no other machine has. With dryRun it copies nothing. It returns what became of each run, in the order of their ids; on an error, of those before. It may be called again then.
func (r *Runner) Bring(ctx context.Context, dir string, dryRun bool) (all []Brought, err error) {
	entries, err := safefile.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for _, entry := range entries {
		if ctx.Err() != nil {
			return all, context.Cause(ctx)
		}
		id, isRecord := strings.CutSuffix(entry.Name(), suffix)
		refused := Brought{PlanRunID: strconv.QuoteToASCII(entry.Name()), Outcome: agents.BringRefused, Reason: "no record of a run may have that name"}
		switch {
		case isRecord && api.ValidPlanID(id):
		case entry.Name() == "tasks", !isRecord && isCutOff(entry.Name()):
			continue
		default:
			all = append(all, refused)
			continue
		}
		one, err := r.bring(ctx, dir, id, dryRun)
		if err != nil {
			return all, err
		}
		all = append(all, one)
	}
	if dryRun {
		return all, nil
	}
	return all, r.o.Tasks.Bring(ctx, filepath.Join(dir, "tasks"))
}

// isCutOff reports whether a file of that name is of a write that was cut off.
func isCutOff(name string) bool {
	return strings.HasPrefix(name, ".") || strings.HasSuffix(name, suffix+".new")
}

// bring copies the record of one run.
func (r *Runner) bring(ctx context.Context, dir, id string, dryRun bool) (Brought, error) {
	defer r.locks.Lock(id)()
	one := Brought{PlanRunID: id, Outcome: agents.BringComes}
	from := filepath.Join(dir, id+suffix)
	is, err := planOf(ctx, from)
	if ctx.Err() != nil {
		return one, context.Cause(ctx)
	}
	if err != nil {
		one.Outcome, one.Reason = agents.BringRefused, err.Error()
		return one, nil
	}
	switch has, err := planOf(ctx, r.record(id)); {
	case ctx.Err() != nil:
		return one, context.Cause(ctx)
	case err == nil && has == is:
		one.Outcome = agents.BringThere
		if r.o.Claims != nil {
			one.Reason = onMachine(r.o.Claims.Self())
		}
	case !errors.Is(err, fs.ErrNotExist):
		one.Outcome, one.Reason = agents.BringConflict, anotherPlan
	default:
		return r.bringNew(ctx, one, from, is, dryRun)
	}
	return one, nil
}

// anotherPlan is why a run does not come whose id the cluster has.
const anotherPlan = "there is a run of that id with another plan"

// onMachine says where a run is that does not have to come.
func onMachine(machine string) string { return "it is on the machine " + machine }

// bringNew copies the record of a run that is not here; is tells it from others of its id.
func (r *Runner) bringNew(ctx context.Context, one Brought, from, is string, dryRun bool) (Brought, error) {
	id := one.PlanRunID
	take := r.take
	if dryRun {
		take = r.Elsewhere
	}
	err := take(ctx, id)
	if claimed, ok := errors.AsType[*rpc.ClaimedError](err); ok {
		has, err := r.o.Others.RunDigest(ctx, claimed.Machine, id)
		switch {
		case err != nil:
			one.Outcome, one.Reason = agents.BringConflict, fmt.Sprintf("the machine %s has a run of that id, and does not say whether it is this one: %v", claimed.Machine, err)
		case has != is:
			one.Outcome, one.Reason = agents.BringConflict, anotherPlan
		default:
			one.Outcome, one.Reason = agents.BringThere, onMachine(claimed.Machine)
		}
		return one, nil
	}
	if err != nil || dryRun {
		return one, err
	}
	err = safefile.Mkdir(r.o.Dir)
	if err == nil {
		err = safefile.Copy(ctx, from, r.record(id), maxRecord)
	}
	if err != nil {
		r.releaseUnrecorded(ctx, id)
		return one, err
	}
	one.Outcome = agents.BringCame
	return one, nil
}

// planOf is the digest of the plan of a record.
func planOf(ctx context.Context, path string) (string, error) {
	if _, err := os.Lstat(path); err != nil {
		return "", err
	}
	file, err := openRegular(path, os.O_RDONLY)
	if err != nil {
		return "", err
	}
	defer file.Close()
	digest, _, _, err := newRecord(idOf(path), file).replay(ctx)
	return digest, err
}
