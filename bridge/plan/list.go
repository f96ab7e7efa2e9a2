package plan

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/rpc"
	"nexus.internal/protocol"
	"nexus.internal/protocol/safefile"
)

// List is list_runs: the runs that are recorded, the one that was written last first.
func (r *Runner) List(_ context.Context, _ *rpc.Call, p api.ListRunsParams) (api.ListRunsResult, error) {
	entries, err := safefile.ReadDir(r.o.Dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return api.ListRunsResult{}, unrecorded("list the records", err)
	}
	type record struct {
		id string
		at time.Time
	}
	var all []record
	for _, entry := range entries {
		id, isRecord := strings.CutSuffix(entry.Name(), suffix)
		if info, err := entry.Info(); isRecord && err == nil && info.Mode().IsRegular() && api.ValidPlanID(id) {
			all = append(all, record{id, info.ModTime()})
		}
	}
	slices.SortFunc(all, func(a, b record) int { return b.at.Compare(a.at) })
	result := api.ListRunsResult{Total: len(all), Runs: []api.PlanRun{}}
	from := min(protocol.Value(p.Offset), uint64(len(all)))
	for _, one := range all[from:min(from+protocol.ValueOr(p.Limit, api.DefaultRuns), uint64(len(all)))] {
		found, err := r.look(one.id, one.at)
		switch {
		case errors.Is(err, fs.ErrNotExist): // it was pruned just now
		case err != nil:
			result.Runs = append(result.Runs, api.PlanRun{PlanRunID: one.id, Status: api.PlanDamaged, UpdatedAt: seconds(one.at)})
		default:
			result.Runs = append(result.Runs, found.PlanRun)
		}
	}
	return result, nil
}

// Get is get_run.
func (r *Runner) Get(ctx context.Context, _ *rpc.Call, p api.GetRunParams) (api.GetRunResult, error) {
	unknown := api.Invalid("plan_run_id", "no run of that id is recorded")
	if !api.ValidPlanID(p.PlanRunID) {
		return api.GetRunResult{}, unknown
	}
	info, err := os.Lstat(r.record(p.PlanRunID))
	if err != nil {
		return api.GetRunResult{}, cmp.Or(r.Elsewhere(ctx, p.PlanRunID), error(unknown))
	}
	found, err := r.look(p.PlanRunID, info.ModTime())
	if errors.Is(err, fs.ErrNotExist) {
		err = unknown
	}
	return found, err
}

// look tells of a run by its record, which was written last at that time.
func (r *Runner) look(id string, at time.Time) (api.GetRunResult, error) {
	goesOn := r.get(id) != nil // before the record is read: it may end meanwhile
	record, err := Look(r.record(id))
	if err != nil {
		return api.GetRunResult{}, err
	}
	found := api.GetRunResult{
		PlanRun:     api.PlanRun{PlanRunID: id, Status: record.Status, TasksDone: len(record.Done), UpdatedAt: seconds(at)},
		Plan:        record.Plan,
		TaskResults: []api.PlanTaskResult{},
	}
	switch {
	case record.Status != "":
	case goesOn:
		found.Status = api.PlanRunning
	default:
		found.Status = api.PlanInterrupted
	}
	var order []string
	if record.Plan != nil {
		found.Tasks = len(record.Plan.Tasks)
		for _, t := range record.Plan.Tasks {
			order = append(order, t.ID)
		}
	} else {
		for id := range record.Done {
			order = append(order, id)
		}
		slices.Sort(order)
	}
	for _, task := range order {
		if result, done := record.Done[task]; done {
			found.TaskResults = append(found.TaskResults, result)
		}
	}
	return found, nil
}

func seconds(t time.Time) float64 { return float64(t.UnixMicro()) / 1e6 }
