package api

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// The kinds of work that a task can be.
const (
	TaskCodeGeneration = "code_generation"
	TaskRefactoring    = "refactoring"
	TaskAnalysis       = "analysis"
	TaskTesting        = "testing"
)

// TaskTypes are all kinds of tasks.
var TaskTypes = []string{TaskCodeGeneration, TaskRefactoring, TaskAnalysis, TaskTesting}

// How a task ended, as Status of an ExecuteTaskResult or a PlanTaskResult says.
const (
	TaskSuccess   = "success"
	TaskFailed    = "failed"    // the agent says so, or there is an error
	TaskCancelled = "cancelled" // by cancel, or with its plan
	TaskSkipped   = "skipped"   // of a plan: it was never begun
)

// Bounds of tasks and plans (SPEC §7).
const (
	// MaxTasks is how many tasks a plan may have.
	MaxTasks = 100
	// MaxPool is how many agents a plan is carried out by.
	MaxPool = 16
	// MaxTaskRequestID bounds the request_id of what takes more than one turn, in
	// bytes.
	MaxTaskRequestID = 96
	// DefaultTaskTimeout is the timeout_s of a task and of the making of a plan,
	// DefaultCheckTimeout that of validate_code, in seconds.
	DefaultTaskTimeout  = 600
	DefaultCheckTimeout = 60
	// MaxCheckTimeout bounds timeout_s of validate_code, in seconds.
	MaxCheckTimeout = 600
)

type (
	// ExecuteTaskParams is one piece of work for the executor.
	ExecuteTaskParams struct {
		TaskType string       `json:"task_type" enum:"code_generation,refactoring,analysis,testing"` // one of TaskTypes
		Prompt   string       `json:"prompt"`
		Context  *TaskContext `json:"context,omitzero"`
		Options  *TaskOptions `json:"options,omitzero"`
		// AgentID names the agent; if missing, it is that of the path or of the
		// role executor.
		AgentID *string `json:"agent_id,omitzero"`
		// TimeoutS bounds the run time of the turns, in seconds.
		TimeoutS *float64 `json:"timeout_s,omitzero"`
		// RequestID is as in SendParams, up to MaxTaskRequestID bytes.
		RequestID *string `json:"request_id,omitzero"`
	}
	// TaskContext is what the executor should know. The server reads no file of
	// it; the agent may.
	TaskContext struct {
		Files            *[]string `json:"files,omitzero"`
		CurrentDirectory *string   `json:"current_directory,omitzero"`
		Dependencies     *[]string `json:"dependencies,omitzero"`
		Constraints      *[]string `json:"constraints,omitzero"`
	}
	// TaskOptions are how the work is to be done.
	TaskOptions struct {
		Language   *string `json:"language,omitzero"`
		Framework  *string `json:"framework,omitzero"`
		StyleGuide *string `json:"style_guide,omitzero"`
	}
	// ExecuteTaskResult is what came of a task.
	ExecuteTaskResult struct {
		Status   string       `json:"status" enum:"success,failed,cancelled"` // success, failed or cancelled
		Output   TaskOutput   `json:"output"`
		Metadata TaskMetadata `json:"metadata"`
		// Replayed says that the task had ended before this request came.
		Replayed bool `json:"replayed,omitzero" wire:"default"`
	}
	// TaskOutput has the agent's words, and the files that its tools recorded,
	// absolute and sorted: what a shell command changes is not among them.
	TaskOutput struct {
		Code          string   `json:"code"`
		Explanation   string   `json:"explanation"`
		FilesModified []string `json:"files_modified"`
		FilesCreated  []string `json:"files_created"`
	}
	// TaskMetadata says what a task took.
	TaskMetadata struct {
		ExecutionTimeMS int64  `json:"execution_time_ms"` // wall clock, waiting included
		TokensUsed      uint64 `json:"tokens_used"`       // in and out
		Model           string `json:"model"`
		AgentID         string `json:"agent_id"`
		RequestID       string `json:"request_id"`
		// Repaired says that the first answer was not of the declared shape.
		Repaired bool `json:"repaired,omitzero" wire:"default"`
	}

	// CreatePlanParams ask the planner for a plan.
	CreatePlanParams struct {
		UserRequest  string           `json:"user_request"`
		CurrentState *PlanState       `json:"current_state,omitzero"`
		Constraints  *PlanConstraints `json:"constraints,omitzero"`
		AgentID      *string          `json:"agent_id,omitzero"`
		TimeoutS     *float64         `json:"timeout_s,omitzero"`
		RequestID    *string          `json:"request_id,omitzero"`
	}
	// PlanState is how far the work has come. The items are any JSON.
	PlanState struct {
		CompletedTasks *[]jsontext.Value `json:"completed_tasks,omitzero"`
		PendingTasks   *[]jsontext.Value `json:"pending_tasks,omitzero"`
		Context        jsontext.Value    `json:"context,omitzero" wire:"default"`
	}
	// PlanConstraints bound a plan.
	PlanConstraints struct {
		MaxTasks *int `json:"max_tasks,omitzero"` // 1 to MaxTasks, which is the default
		// TimeLimitSeconds is the most that the plan may be estimated at, and the
		// time for its making unless timeout_s says another.
		TimeLimitSeconds *float64 `json:"time_limit_seconds,omitzero"`
	}
	// CreatePlanResult is a plan that holds what Plan promises.
	CreatePlanResult struct {
		Plan Plan `json:"plan"`
		// Replayed says that it had been made before this request came.
		Replayed bool `json:"replayed,omitzero"`
	}
	// Plan is tasks whose ids are unique and whose dependencies are there and
	// without a cycle.
	Plan struct {
		Tasks []PlanTask `json:"tasks"`
		// EstimatedTimeSeconds is the planner's guess.
		EstimatedTimeSeconds float64 `json:"estimated_time_seconds" wire:"default"`
		Explanation          string  `json:"explanation" wire:"default"`
	}
	// PlanTask is one task of a plan.
	PlanTask struct {
		ID          string `json:"id"`
		Type        string `json:"type" enum:"code_generation,refactoring,analysis,testing"` // one of TaskTypes
		Description string `json:"description"`
		// Dependencies are ids of tasks that must have succeeded before.
		Dependencies []string `json:"dependencies" wire:"default"`
		// Priority: of the tasks that could run, the one with the lowest goes first.
		Priority int `json:"priority" wire:"default"`
	}

	// ValidateCodeParams are code to be looked at, and never run.
	ValidateCodeParams struct {
		Code     string `json:"code"`
		Language string `json:"language"`
		// Rules are those to apply, by the checker's own names.
		Rules *[]string `json:"rules,omitzero"` // at most MaxRules
		// TimeoutS bounds it, waiting included, in seconds.
		TimeoutS *float64 `json:"timeout_s,omitzero"`
	}
	// ValidateCodeResult is what a checker found.
	ValidateCodeResult struct {
		// Valid says that there is no diagnostic of severity error.
		Valid       bool             `json:"valid"`
		Checker     CodeChecker      `json:"checker"`
		Diagnostics []CodeDiagnostic `json:"diagnostics"`
		// Truncated says that there were more diagnostics.
		Truncated bool `json:"truncated,omitzero" wire:"default"`
		// UncheckedRules are those that the checker cannot be asked for.
		UncheckedRules []string `json:"unchecked_rules"`
	}
	// CodeChecker is what looked at the code.
	CodeChecker struct {
		Name    string   `json:"name"`
		Version string   `json:"version"`
		Command []string `json:"command"` // [] for what is built in
	}
	// CodeDiagnostic is one fault. Line and Column count from 1; 0 is unknown.
	CodeDiagnostic struct {
		Line     int    `json:"line"`
		Column   int    `json:"column"`
		Severity string `json:"severity" enum:"error,warning"` // error or warning
		Rule     string `json:"rule,omitzero" wire:"default"`
		Message  string `json:"message"`
	}

	// UpdateContextParams change what agents are told beside the conversation.
	UpdateContextParams struct {
		Action      string         `json:"action" enum:"add,remove,modify"`           // add, remove or modify
		ContextType string         `json:"context_type" enum:"file,dependency,state"` // file, dependency or state
		Data        jsontext.Value `json:"data" schema:"object"`                      // an object, SPEC §4.8
		// AgentID names the one agent; if missing, it is that of the path, or all.
		AgentID *string `json:"agent_id,omitzero"`
	}
	// UpdateContextResult says which agents were reached.
	UpdateContextResult struct {
		// Updated says that all of them took it.
		Updated bool            `json:"updated"`
		Agents  []ContextUpdate `json:"agents"` // by id
	}
	// ContextUpdate is what became of an update in one agent.
	ContextUpdate struct {
		AgentID string `json:"agent_id"`
		Updated bool   `json:"updated"`
		Error   string `json:"error,omitzero"` // why not
	}
)

// Check finds values that are of the right type and still cannot be used. The
// error is a *ParamError.
func (p ExecuteTaskParams) Check() error {
	if !slices.Contains(TaskTypes, p.TaskType) {
		return Invalid("task_type", "want %s", oneOf(TaskTypes))
	}
	if strings.TrimSpace(p.Prompt) == "" {
		return Invalid("prompt", "is empty")
	}
	return checkTask(p.AgentID, p.RequestID, p.TimeoutS)
}

// Check finds values that are of the right type and still cannot be used. The
// error is a *ParamError.
func (p CreatePlanParams) Check() error {
	if strings.TrimSpace(p.UserRequest) == "" {
		return Invalid("user_request", "is empty")
	}
	if c := p.Constraints; c != nil {
		if c.MaxTasks != nil && (*c.MaxTasks < 1 || *c.MaxTasks > MaxTasks) {
			return Invalid("constraints.max_tasks", "want 1 to %d", MaxTasks)
		}
		if err := checkTimeout("constraints.time_limit_seconds", c.TimeLimitSeconds, MaxTimeout); err != nil {
			return err
		}
	}
	return checkTask(p.AgentID, p.RequestID, p.TimeoutS)
}

// rule is the name of a rule of some checker. It becomes part of an argument.
var rule = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_@/.-]{0,99}$`)

// Check finds values that are of the right type and still cannot be used. The
// error is a *ParamError.
func (p ValidateCodeParams) Check() error {
	if strings.TrimSpace(p.Language) == "" {
		return Invalid("language", "is empty")
	}
	for i, name := range Value(p.Rules) {
		if !rule.MatchString(name) {
			return Invalid(fmt.Sprintf("rules[%d]", i), "want the name of a rule")
		}
	}
	if n := len(Value(p.Rules)); n > MaxRules {
		return Invalid("rules", "want at most %d, have %d", MaxRules, n)
	}
	return checkTimeout("timeout_s", p.TimeoutS, MaxCheckTimeout)
}

// Check finds values that are of the right type and still cannot be used. The
// error is a *ParamError.
func (p UpdateContextParams) Check() error {
	for _, one := range []struct {
		name, value string
		words       []string
	}{
		{"action", p.Action, []string{"add", "remove", "modify"}},
		{"context_type", p.ContextType, []string{"file", "dependency", "state"}},
	} {
		if !slices.Contains(one.words, one.value) {
			return Invalid(one.name, "want %s", oneOf(one.words))
		}
	}
	if p.Data.Kind() != '{' {
		return Invalid("data", "must be an object")
	}
	return checkAgentID(p.AgentID)
}

func checkTask(agent, request *string, timeout *float64) error {
	if err := checkAgentID(agent); err != nil {
		return err
	}
	if request != nil && (*request == "" || len(*request) > MaxTaskRequestID) {
		return Invalid("request_id", "want 1 to %d bytes, have %d", MaxTaskRequestID, len(*request))
	}
	return checkTimeout("timeout_s", timeout, MaxTimeout)
}

func checkAgentID(id *string) error {
	if id != nil && !ValidAgentID(*id) {
		return Invalid("agent_id", "is not the name of an agent")
	}
	return nil
}

func checkTimeout(name string, seconds *float64, most int) error {
	if seconds != nil && !(*seconds > 0 && *seconds <= float64(most)) {
		return Invalid(name, "want more than 0 and at most %d seconds", most)
	}
	return nil
}

// Problems says what is wrong with a plan of at most most tasks: all that can be
// said of it at once, each naming its member; nil if the plan holds.
func (p Plan) Problems(most int) []*ParamError {
	var found []*ParamError
	if n := len(p.Tasks); n == 0 || n > most {
		found = append(found, Invalid("tasks", "want 1 to %d, have %d", most, n))
	}
	index := map[string]int{}
	for i, t := range p.Tasks {
		at := func(member string) string { return fmt.Sprintf("tasks[%d].%s", i, member) }
		if !ValidPlanID(t.ID) {
			found = append(found, Invalid(at("id"), wantPlanID))
		} else if first, twice := index[t.ID]; twice {
			found = append(found, Invalid(at("id"), "%q is the id of tasks[%d] too", t.ID, first))
		} else {
			index[t.ID] = i
		}
		if !slices.Contains(TaskTypes, t.Type) {
			found = append(found, Invalid(at("type"), "want %s", oneOf(TaskTypes)))
		}
		if strings.TrimSpace(t.Description) == "" {
			found = append(found, Invalid(at("description"), "is empty"))
		}
	}
	for i, t := range p.Tasks {
		for j, need := range t.Dependencies {
			if _, there := index[need]; !there {
				found = append(found, Invalid(fmt.Sprintf("tasks[%d].dependencies[%d]", i, j), "there is no task %q", clip(need)))
			}
		}
	}
	if len(found) > 0 {
		return found
	}
	if cycle := p.cycle(index); cycle != nil {
		return []*ParamError{Invalid("tasks", "their dependencies go round in a circle: %s", clip(strings.Join(cycle, " -> ")))}
	}
	return nil
}

// cycle is a circle of dependencies, its first task at its end again; nil if
// there is none. index has all ids.
func (p Plan) cycle(index map[string]int) []string {
	const (
		unseen = iota
		open   // on the path that is being followed
		done
	)
	state := make([]int, len(p.Tasks))
	var path []string
	var follow func(i int) []string
	follow = func(i int) []string {
		t := p.Tasks[i]
		switch state[i] {
		case done:
			return nil
		case open:
			return append(slices.Clone(path[slices.Index(path, t.ID):]), t.ID)
		}
		state[i] = open
		path = append(path, t.ID)
		for _, need := range t.Dependencies {
			if found := follow(index[need]); found != nil {
				return found
			}
		}
		path = path[:len(path)-1]
		state[i] = done
		return nil
	}
	for i := range p.Tasks {
		if found := follow(i); found != nil {
			return found
		}
	}
	return nil
}

func oneOf(words []string) string {
	return strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1]
}
