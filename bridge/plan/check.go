package plan

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"nexus.internal/bridge/api"
)

// maxAttempt bounds the attempts at a task that a record tells of: each request that goes on with a run makes a few.
const maxAttempt = 1_000_000

var (
	taskStatuses = []string{api.TaskSuccess, api.TaskFailed, api.TaskCancelled, api.TaskSkipped}
	runStatuses  = []string{api.PlanCompleted, api.PlanFailed, api.PlanCancelled, api.PlanTimedOut}
)

// attemptID is the request id of an attempt at a task of a run.
func attemptID(run, task string, attempt int) string {
	if attempt == 1 {
		return run + "/" + task
	}
	return fmt.Sprintf("%s/%s/%d", run, task, attempt)
}

// idOf is the id of the run whose record is at path.
func idOf(path string) string { return strings.TrimSuffix(filepath.Base(path), suffix) }

// impossible says why no run can have recorded a line, as run_plan would say it of what it is asked for; "" if one can. What the program writes into a
// record is made of what was checked, so whatever else there is was written by somebody else.
func (r *Record) impossible(l line) string {
	switch {
	case l.Type == "plan" && l.Plan != nil:
		if n := len(l.Plan.Tasks); n > api.MaxTasks {
			return fmt.Sprintf("a plan has 1 to %d tasks, this one %d", api.MaxTasks, n)
		}
		if problems := l.Plan.Problems(api.MaxTasks); problems != nil {
			return "no plan can be so: " + problems[0].Error()
		}
	case l.Type == "task_start" && l.Start != nil:
		return r.impossibleStart(*l.Start)
	case l.Type == "task_end" && l.End != nil:
		return r.impossibleEnd(*l.End)
	case l.Type == "plan_end" && !slices.Contains(runStatuses, l.Status):
		return fmt.Sprintf("no run ends as %.40q", l.Status)
	case l.Type == "plan_again":
		for _, task := range l.Tasks {
			if problem := r.meet(task); problem != "" {
				return problem
			}
		}
	}
	return ""
}

func (r *Record) impossibleStart(s Start) string {
	problem := r.meet(s.TaskID)
	switch {
	case problem != "":
		return problem
	case s.Worker < 0 || s.Worker >= api.MaxPool:
		return fmt.Sprintf("there is no worker %d, of 0 to %d", s.Worker, api.MaxPool-1)
	case s.Attempt < 1 || s.Attempt > maxAttempt:
		return fmt.Sprintf("there is no attempt %d, of 1 to %d", s.Attempt, maxAttempt)
	case s.RequestID != attemptID(r.id, s.TaskID, s.Attempt):
		return fmt.Sprintf("%.200q is not the request_id of an attempt at %s", s.RequestID, s.TaskID)
	}
	return ""
}

func (r *Record) impossibleEnd(e api.PlanTaskResult) string {
	problem := r.meet(e.TaskID)
	switch {
	case problem != "":
		return problem
	case !slices.Contains(taskStatuses, e.Status):
		return fmt.Sprintf("no task ends as %.40q", e.Status)
	case e.AgentID != "" && !api.ValidAgentID(e.AgentID):
		return fmt.Sprintf("%.200q is no name of an agent", e.AgentID)
	case e.RequestID != "" && !isAttempt(e.RequestID, r.id, e.TaskID):
		return fmt.Sprintf("%.200q is not the request_id of an attempt at %s", e.RequestID, e.TaskID)
	}
	return ""
}

// isAttempt reports whether an attempt at a task has that request id.
func isAttempt(request, run, task string) bool {
	number, again := strings.CutPrefix(request, attemptID(run, task, 1)+"/")
	if !again {
		return request == attemptID(run, task, 1)
	}
	attempt, err := strconv.Atoi(number)
	return err == nil && attempt > 1 && attempt <= maxAttempt && request == attemptID(run, task, attempt)
}

// meet says why a task is none of the run; "" if it can be one. Where the plan is not recorded, as earlier versions did not, any task is one, as long as they are no more than
// a plan can have.
func (r *Record) meet(task string) string {
	switch {
	case r.tasks[task]:
		return ""
	case r.Plan != nil:
		return fmt.Sprintf("the plan has no task %.80q", task)
	case !api.ValidPlanID(task):
		return fmt.Sprintf("%.80q is no id of a task", task)
	case len(r.tasks) >= api.MaxTasks:
		return fmt.Sprintf("it has more than %d tasks", api.MaxTasks)
	}
	r.tasks[task] = true
	return ""
}
