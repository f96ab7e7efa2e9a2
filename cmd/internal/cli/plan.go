package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/client"
	"nexus.internal/protocol/jsonrpc"
	"nexus.internal/protocol/strict"
)

// planVerb carries out a plan and shows how it gets on.
func (a *App) planVerb() *cobra.Command {
	var p api.RunPlanParams
	var pool api.PlanPool
	var run, preset, cwd, model string
	var agents []string
	var size int
	var goOn, retry bool
	var timeout time.Duration
	cmd := a.verb("plan FILE [FLAGS]", "run_plan", 1, mustRun, func(ctx context.Context, c *client.Client, args []string) error {
		var err error
		if p.Plan, err = a.readPlan(args[0]); err != nil {
			return err
		}
		if run == "" {
			run = uuid.NewString()
		}
		p.RequestID = &run
		if goOn {
			p.OnFailure = new(api.OnFailureContinue)
		}
		if retry {
			p.Retry = &retry
		}
		if timeout != 0 {
			p.TimeoutS = new(timeout.Seconds())
		}
		return a.plan(ctx, c, p)
	})
	cmd.Long = `Carry out the tasks of a plan by several agents, in the order of their dependencies, and say how it gets on.

FILE is a plan in JSON, or what create_plan gave; - reads it from stdin:
  {"tasks": [{"id": "code", "type": "code_generation", "description": "Write the handler"},
             {"id": "test", "type": "testing", "description": "Test it", "dependencies": ["code"]}]}
A type is code_generation, refactoring, analysis or testing.

An interrupt ends the watching and not the run. The same command with --run RUN watches it again, goes on with it after
the end of the server or a fault, and shows its result once it has ended. "cancel RUN" ends it for good.`
	flags := cmd.Flags()
	flags.StringVar(&run, "run", "", "name of the run, to watch it, go on with it or cancel it by (default: a new one)")
	flags.StringSliceVar(&agents, "agents", nil, "agents that carry it out, as in a,b (default: a pool of new ones)")
	flags.IntVar(&size, "size", api.DefaultPool, "how many agents the pool has")
	flags.StringVar(&preset, "preset", "", "permissions of the pool's agents, such as trusted or sandboxed")
	flags.StringVar(&cwd, "cwd", "", "directory that the pool's agents work in (default: this one)")
	flags.StringVar(&model, "model", "", "model of the pool's agents")
	flags.BoolVar(&goOn, "continue", false, "go on with what does not depend on a task that failed")
	flags.BoolVar(&retry, "retry", false, "try again whatever did not succeed in a run that has ended")
	flags.DurationVar(&timeout, "timeout", 0, "limit on the run, as in 10m")
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) error {
		for name, set := range map[string]func(){
			"agents": func() { p.Agents = &agents },
			"size":   func() { pool.Size = &size },
			"preset": func() { pool.Preset = &preset },
			"cwd":    func() { pool.Cwd = &cwd },
			"model":  func() { pool.Model = &model },
		} {
			if !cmd.Flags().Changed(name) {
				continue
			}
			if set(); name != "agents" {
				p.Pool = &pool
			}
		}
		if p.Agents != nil && p.Pool != nil {
			return Usage("--agents goes without --size, --preset, --cwd and --model, which are of a pool")
		}
		if p.Agents != nil {
			return nil
		}
		if pool.Cwd == nil { // not that of the server
			here, err := workingDir()
			if err != nil {
				return err
			}
			p.Pool, pool.Cwd = &pool, &here
		}
		return absolute(pool.Cwd)
	}
	return cmd
}

// readPlan reads a plan, or the result of create_plan.
func (a *App) readPlan(path string) (api.Plan, error) {
	in := a.Stdin
	if path != "-" {
		file, err := os.Open(path)
		if err != nil {
			return api.Plan{}, fmt.Errorf("read the plan: %w", err)
		}
		defer file.Close()
		in = file
	}
	text, err := io.ReadAll(io.LimitReader(in, maxStdin))
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

// plan runs it and shows what it tells.
func (a *App) plan(ctx context.Context, c *client.Client, p api.RunPlanParams) error {
	ctx, release := interruptible(ctx)
	defer release()
	told := map[string]bool{} // the tasks whose ends were shown
	for part, err := range c.RunPlanStream(ctx, p) {
		switch {
		case err != nil && ctx.Err() != nil:
			return fmt.Errorf("the run goes on: the same command with --run %s watches it, cancel %s ends it", *p.RequestID, *p.RequestID)
		case err != nil:
			return err
		}
		if result, ok := part.(client.PlanResult); ok {
			return a.planEnded(api.RunPlanResult(result), told)
		}
		if err := a.tellPlan(part, told); err != nil {
			return err
		}
	}
	return nil
}

// tellPlan shows one notification.
func (a *App) tellPlan(part client.PlanPart, told map[string]bool) error {
	if a.json {
		params, err := paramsOf(part)
		if err != nil {
			return err
		}
		return a.printJSON(struct {
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
		return a.printf("run %s: %d %s, %d ended before\n", part.PlanRunID, part.Tasks, tasks, len(part.Completed))
	case client.TaskStart:
		return a.printf("%s: begun by %s\n", part.TaskID, part.AgentID)
	case client.TaskEnd:
		told[part.TaskID] = true
		return a.tellTask(part.TaskID, part.Status, why(part.PlanTaskResult))
	case client.PlanEnd, client.PlanResult, client.UnknownPart: // the result tells
	}
	return nil
}

// paramsOf are the parameters of a notification.
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

// tellTask shows how a task ended, and why or with what.
func (a *App) tellTask(task, status, why string) error {
	return a.say("%s: %s\n", task, strings.TrimSuffix(status+": "+why, ": "))
}

// planEnded says how the run ended, and its tasks that were not told: those had
// ended before. It is an error unless all succeeded.
func (a *App) planEnded(result api.RunPlanResult, told map[string]bool) error {
	if a.json {
		if err := a.printJSON(result); err != nil {
			return err
		}
	}
	for _, task := range result.Tasks {
		if told[task.TaskID] {
			continue
		}
		if err := a.tellTask(task.TaskID, task.Status, why(task)); err != nil {
			return err
		}
	}
	switch {
	case result.Status == api.PlanCompleted:
		return a.say("the run is completed\n")
	case result.Resumable:
		return fmt.Errorf("the run has %s, and goes on by the same command with --run %s", result.Status, result.PlanRunID)
	}
	return fmt.Errorf("the run ended as %s: the same command with --run %s and --retry tries again what did not succeed", result.Status, result.PlanRunID)
}
