package plan

import (
	"context"
	"crypto/rand"
	"fmt"
	"sync"

	"go.uber.org/zap"

	"nexus.internal/bridge/agents"
	"nexus.internal/bridge/api"
	"nexus.internal/bridge/rpc"
	"nexus.internal/protocol"
	"nexus.internal/supervisor"
)

// pool is the agents that carry out a plan: those that were named, or ones of
// its own that are created as they are needed. A worker is used by one task at a
// time.
type pool struct {
	r    *Runner
	by   *rpc.Call              // who wanted the plan
	make *api.CreateAgentParams // what creates its own; nil for agents that were named
	dir  *string                // where the tasks are to be done; nil for where its agents work

	mu   sync.Mutex // guards all below
	ids  []string
	made []*supervisor.Agent // its own, by worker; nil for one that is not there
}

func (r *Runner) newPool(by *rpc.Call, p api.RunPlanParams) (*pool, error) {
	if p.Agents != nil {
		return &pool{r: r, by: by, ids: *p.Agents}, nil
	}
	asked := protocol.Value(p.Pool)
	size := api.DefaultPool
	if asked.Size != nil {
		size = *asked.Size
	}
	dir := protocol.Value(p.Context).CurrentDirectory
	agent := asked.Agent()
	if err := agents.CheckDir(agent, dir); err != nil {
		return nil, err
	}
	w := &pool{r: r, by: by, make: &agent, dir: dir}
	for i := range min(size, len(p.Plan.Tasks)) {
		w.ids, w.made = append(w.ids, workerID(i)), append(w.made, nil)
	}
	return w, nil
}

// workerID is a new name for a worker, which nobody can know before.
func workerID(number int) string {
	var secret [8]byte
	_, _ = rand.Read(secret[:]) // never fails
	return fmt.Sprintf(api.PlanPrefix+"%x-%d", secret, number+1)
}

func (w *pool) id(number int) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ids[number]
}

// worker is the agent of that number. One of the pool's own is created for each task,
// afresh, and never taken for another of its name.
func (w *pool) worker(ctx context.Context, number int) (*supervisor.Agent, error) {
	w.mu.Lock()
	id := w.ids[number]
	var made *supervisor.Agent
	if w.make != nil {
		made = w.made[number]
	}
	w.mu.Unlock()
	if w.make == nil {
		return w.r.o.Agents.Resolve(ctx, id)
	}
	if made != nil {
		if now, err := w.r.o.Agents.Supervisor().Agent(id); err != nil || now != made {
			return nil, rpc.AgentNotFound(id, rpc.ErrDestroyed)
		}
		return made, nil
	}
	p := *w.make
	p.AgentID = &id
	a, err := agents.CreateIn(ctx, w.r.o.Agents, w.by, p, w.dir)
	if err != nil {
		return nil, agents.DirError(api.PoolError(err), w.dir)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.made[number] = a
	return a, nil
}

// retire ends a worker of the pool's own after its task: the next task has another, which knows
// nothing of this one.
func (w *pool) retire(number int) {
	if w.make == nil {
		return
	}
	w.mu.Lock()
	a := w.made[number]
	w.ids[number], w.made[number] = workerID(number), nil
	w.mu.Unlock()
	w.destroy(a)
}

// replace gives up a worker that was destroyed, and reports whether there will
// be another of that number.
func (w *pool) replace(number int) bool {
	if w.make == nil {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ids[number], w.made[number] = workerID(number), nil
	return true
}

// close destroys what the pool has created.
func (w *pool) close() {
	var removals sync.WaitGroup
	for _, a := range w.made {
		removals.Go(func() { w.destroy(a) })
	}
	removals.Wait()
}

// destroy destroys an agent of the pool's own, if it is still there; a may be nil.
func (w *pool) destroy(a *supervisor.Agent) {
	if a == nil {
		return
	}
	if now, err := w.r.o.Agents.Supervisor().Agent(a.ID()); err != nil || now != a {
		return // somebody was faster
	}
	if err := w.r.o.Agents.DestroyFor(context.Background(), w.by, a.ID()); err != nil {
		w.r.o.Log.Error("destroy an agent of a plan", zap.String("agent", a.ID()), zap.Error(err))
	}
}
