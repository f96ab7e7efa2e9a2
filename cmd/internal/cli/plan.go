package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/uuid"
	"github.com/spf13/pflag"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/client"
	"nexus.internal/cmd/internal/progress"
	"nexus.internal/protocol/jsonrpc"
	"nexus.internal/protocol/safefile"
	"nexus.internal/protocol/strict"
)

// plan is the verb that carries out a plan and shows how it gets on.
type plan struct {
	p           api.RunPlanParams
	pool        api.PlanPool
	agents      []string
	size        int
	goOn, retry bool
	timeout     time.Duration
	told        map[string]bool // the tasks whose ends were shown
	before      int             // how many tasks had ended before
	atWork      []string        // the tasks that have begun
}

const planHelp = `Carry out the tasks of a plan by several agents, in the order of their dependencies, and print the progress.

FILE is a plan in JSON, or the result of create_plan; - reads it from stdin:
  {"tasks": [{"id": "code", "type": "code_generation", "description": "Write the handler"},
             {"id": "test", "type": "testing", "description": "Test it", "dependencies": ["code"]}]}
A type is code_generation, refactoring, analysis or testing.

An interrupt ends the watching, not the run. The same command with --run RUN watches the run again, continues it after
the end of the server or a fault, and prints the result of an ended run. "cancel RUN" cancels the run.`

func (v *plan) flags(f *pflag.FlagSet) {
	f.Var(optional{&v.p.RequestID}, "run", "name of the run, by which to watch, continue or cancel it (default: a new one)")
	f.StringSliceVar(&v.agents, "agents", nil, "agents that carry it out, as in a,b (default: a pool of new ones)")
	f.IntVar(&v.size, "size", api.DefaultPool, "number of agents in the pool")
	f.Var(optional{&v.pool.Preset}, "preset", "permissions of the pool's agents, such as trusted or sandboxed")
	f.Var(optional{&v.pool.Cwd}, "cwd", "working directory of the pool's agents (default: this one)")
	f.Var(optional{&v.pool.Model}, "model", "model of the pool's agents")
	f.Var(optional{&v.pool.Kind}, "kind", "kind of the pool's agents, of another make, as kinds lists them (default: those of nexus)")
	f.BoolVar(&v.goOn, "continue", false, "continue with tasks that do not depend on a failed one")
	f.BoolVar(&v.retry, "retry", false, "in an ended run, try all tasks again that did not succeed")
	f.DurationVar(&v.timeout, "timeout", 0, "limit on the run, as in 10m")
	Sets(f, "run", "request_id")
	Sets(f, "continue", "on_failure")
	for _, ofPool := range []string{"size", "preset", "cwd", "model", "kind"} {
		Sets(f, ofPool, "pool."+ofPool)
	}
}

func (v *plan) check(f *pflag.FlagSet, _ []string) error {
	if err := aboveZero(f, "timeout", v.timeout); err != nil {
		return err
	}
	if f.Changed("size") {
		if v.size < 1 || v.size > api.MaxPool {
			return Usage("--size must be from 1 to %d, not %d", api.MaxPool, v.size)
		}
		v.pool.Size = &v.size
	}
	if f.Changed("agents") {
		v.p.Agents = &v.agents
		if v.pool != (api.PlanPool{}) {
			return Usage("--agents goes without --size, --preset, --cwd, --model and --kind, which are of a pool")
		}
		return nil
	}
	if v.p.Pool = &v.pool; v.pool.Cwd == nil { // not that of the server
		here, err := workingDir()
		if err != nil {
			return err
		}
		v.pool.Cwd = &here
	}
	return absolute(v.pool.Cwd)
}

func (v *plan) run(ctx context.Context, a *App, c *client.Client, args []string) (err error) {
	if a.Slash && args[0] == "-" {
		return errNoStdin
	}
	if v.p.Plan, err = readPlan(a.Stdin, args[0]); err != nil {
		return err
	}
	if v.p.RequestID == nil {
		v.p.RequestID = new(uuid.NewString())
	}
	if v.goOn {
		v.p.OnFailure = new(api.OnFailureContinue)
	}
	if v.retry {
		v.p.Retry = &v.retry
	}
	if v.timeout != 0 {
		v.p.TimeoutS = new(v.timeout.Seconds())
	}
	v.told = map[string]bool{}
	ctx, release := Interruptible(ctx)
	defer release()
	bar, end := a.bar(len(v.p.Plan.Tasks), "tasks")
	defer end()
	for part, err := range c.RunPlanStream(ctx, v.p) {
		switch {
		case err != nil && ctx.Err() != nil:
			return fmt.Errorf("the run goes on: the same command with --run %s watches it, cancel %s ends it", *v.p.RequestID, *v.p.RequestID)
		case err != nil:
			return a.serverEnded(err, fmt.Sprintf("; the same command with --run %s continues the run", *v.p.RequestID))
		}
		if result, ok := part.(client.PlanResult); ok {
			return v.ended(a.printer, api.RunPlanResult(result))
		}
		v.show(bar, part)
		if err := v.tell(a.printer, part); err != nil {
			return err
		}
	}
	return nil
}

// show has the bar show how far the run has come.
func (v *plan) show(bar *progress.Bar, part client.PlanPart) {
	switch part := part.(type) {
	case client.PlanStart:
		v.before, v.atWork = 0, nil
		for _, id := range part.Completed {
			if !v.told[id] {
				v.before++
			}
		}
	case client.TaskStart:
		v.atWork = append(v.atWork, part.TaskID)
	case client.TaskEnd:
		v.told[part.TaskID] = true
		v.atWork = slices.DeleteFunc(v.atWork, func(id string) bool { return id == part.TaskID })
	case client.PlanEnd, client.PlanResult, client.UnknownPart:
	}
	bar.At(v.before+len(v.told), line(strings.Join(v.atWork, ", ")))
}

// readPlan reads a plan, or the result of create_plan.
func readPlan(stdin io.Reader, path string) (api.Plan, error) {
	var text []byte
	var err error
	if path == "-" {
		text, err = io.ReadAll(io.LimitReader(stdin, maxStdin+1))
		if err == nil && len(text) > maxStdin {
			err = &safefile.TooLargeError{Limit: maxStdin}
		}
	} else {
		text, err = safefile.ReadNamed(path, maxStdin)
	}
	if err != nil {
		return api.Plan{}, fmt.Errorf("read the plan: %w", err)
	}
	var result struct {
		Plan jsontext.Value `json:"plan"`
	}
	if err := strict.Unmarshal(text, &result, strict.IgnoreUnknown); err == nil && result.Plan.Kind() == '{' {
		text = result.Plan
	}
	var p api.Plan
	if err := strict.Unmarshal(text, &p, strict.RejectUnknown); err != nil {
		return api.Plan{}, fmt.Errorf("read the plan in %s: %w", path, err)
	}
	return p, nil
}

// tell shows one notification.
func (v *plan) tell(p *printer, part client.PlanPart) error {
	if p.Structured() {
		params, err := paramsOf(part)
		if err != nil {
			return err
		}
		return p.PrintValue(struct {
			Method string         `json:"method"`
			Params jsontext.Value `json:"params"`
		}{part.Name(), params})
	}
	switch part := part.(type) {
	case client.PlanStart:
		tasks := "tasks"
		if part.Tasks == 1 {
			tasks = "task"
		}
		return p.Printf("run %s: %d %s, %d ended before\n", part.PlanRunID, part.Tasks, tasks, len(part.Completed))
	case client.TaskStart:
		return p.Printf("%s: begun by %s\n", part.TaskID, part.AgentID)
	case client.TaskEnd:
		return p.tellTask(part.TaskID, part.Status, why(part.PlanTaskResult))
	case client.PlanEnd, client.PlanResult, client.UnknownPart: // the result tells
	}
	return nil
}

func paramsOf(part client.PlanPart) (jsontext.Value, error) {
	if unknown, ok := part.(client.UnknownPart); ok {
		return unknown.Params, nil
	}
	return json.Marshal(part)
}

// why says why a task ended as it did, or with what.
func why(task api.PlanTaskResult) string {
	text := task.Reason
	if task.Error != nil {
		text += jsonrpc.Reason(task.Error.Message, task.Error.Details)
	}
	if task.Result != nil {
		text += task.Result.Output.Explanation
	}
	return text
}

func (p *printer) tellTask(task, status, why string) error {
	return p.say("%s: %s\n", task, strings.TrimSuffix(status+": "+why, ": "))
}

// ended says how the run ended, and its tasks that were not shown: those had
// ended before. It is an error unless all succeeded.
func (v *plan) ended(p *printer, result api.RunPlanResult) error {
	if p.Structured() {
		if err := p.PrintValue(result); err != nil {
			return err
		}
	}
	for _, task := range result.Tasks {
		if v.told[task.TaskID] {
			continue
		}
		if err := p.tellTask(task.TaskID, task.Status, why(task)); err != nil {
			return err
		}
	}
	switch {
	case result.Status == api.PlanCompleted:
		return p.say("the run is completed\n")
	case result.Resumable:
		return fmt.Errorf("the run has %s, and goes on by the same command with --run %s", result.Status, result.PlanRunID)
	}
	more := ""
	if result.Status == api.PlanTimedOut {
		more = ", and --timeout may give it more time"
	}
	return fmt.Errorf("the run ended as %s: the same command with --run %s and --retry tries again what did not succeed%s", result.Status, result.PlanRunID, more)
}
