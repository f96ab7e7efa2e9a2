package api

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"nexus.internal/protocol"
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
	// MaxAttempts is how often a task is tried.
	MaxAttempts = 10
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
		// The kind of work.
		TaskType string `json:"task_type" enum:"code_generation,refactoring,analysis,testing" audit:"-"`
		// The work, in words. It must not be empty.
		Prompt string `json:"prompt" audit:"-"`
		// Context for the executor.
		Context *TaskContext `json:"context,omitzero" audit:"-"`
		// How the work is to be done.
		Options *TaskOptions `json:"options,omitzero" audit:"-"`
		// The agent; the default is that of the path, or of the role executor.
		AgentID *string `json:"agent_id,omitzero" audit:"text"`
		// How long the turns may run, in seconds.
		TimeoutS *float64 `json:"timeout_s,omitzero" min:">0" max:"86400" unit:"seconds" default:"600" audit:"-"`
		// How often it is tried where the agent crashes or its model cannot be reached, with pauses, within timeout_s.
		Attempts *int `json:"attempts,omitzero" min:"1" max:"10" default:"1" audit:"-"`
		// Makes the task idempotent, and names it for cancel. A UUID if missing.
		RequestID *string `json:"request_id,omitzero" min:"1" max:"96" audit:"text"`
	}
	// TaskContext is the context of a task. The server does not read its files; the
	// agent may.
	TaskContext struct {
		// Relevant files. The server does not read them; the agent may.
		Files *[]string `json:"files,omitzero"`
		// The directory of the work, absolute: where the agent works that is made for the task, in that of
		// its role or pool if there is one; for an agent that is named, the one where it works.
		CurrentDirectory *string `json:"current_directory,omitzero"`
		// Dependencies of the code.
		Dependencies *[]string `json:"dependencies,omitzero"`
		// Constraints of the work.
		Constraints *[]string `json:"constraints,omitzero"`
	}
	// TaskOptions are how the work is to be done.
	TaskOptions struct {
		// The programming language.
		Language *string `json:"language,omitzero"`
		// The framework.
		Framework *string `json:"framework,omitzero"`
		// The style guide.
		StyleGuide *string `json:"style_guide,omitzero"`
	}
	// ExecuteTaskResult is the result of a task.
	ExecuteTaskResult struct {
		Status   string       `json:"status" enum:"success,failed,cancelled"` // success, failed or cancelled
		Output   TaskOutput   `json:"output"`
		Metadata TaskMetadata `json:"metadata"`
		// Replayed says that the task had ended before this request came.
		Replayed bool `json:"replayed,omitzero" wire:"default"`
	}
	// TaskOutput has the agent's words, and the files that its tools recorded,
	// absolute and sorted: files that a shell command changes are not among them.
	TaskOutput struct {
		Code          string   `json:"code"`
		Explanation   string   `json:"explanation"`
		FilesModified []string `json:"files_modified"`
		FilesCreated  []string `json:"files_created"`
	}
	// TaskMetadata is the time and the tokens of a task.
	TaskMetadata struct {
		ExecutionTimeMS int64  `json:"execution_time_ms"` // of the turns, without the wait for the agent
		TokensUsed      uint64 `json:"tokens_used"`       // in and out
		Model           string `json:"model"`
		AgentID         string `json:"agent_id"`
		RequestID       string `json:"request_id"`
		// Repaired says that the first answer was not of the declared shape.
		Repaired bool `json:"repaired,omitzero" wire:"default"`
		// Attempts is how often it was tried, if that is more than once.
		Attempts int `json:"attempts,omitzero" wire:"default"`
	}

	// CreatePlanParams ask the planner for a plan.
	CreatePlanParams struct {
		// The request, in words. It must not be empty.
		UserRequest string `json:"user_request" audit:"-"`
		// The state of the work.
		CurrentState *PlanState `json:"current_state,omitzero" audit:"-"`
		// Bounds of the plan.
		Constraints *PlanConstraints `json:"constraints,omitzero" audit:"-"`
		// The agent; the default is that of the path, or of the role planner.
		AgentID *string `json:"agent_id,omitzero" audit:"text"`
		// How long the turns may run, in seconds.
		TimeoutS *float64 `json:"timeout_s,omitzero" min:">0" max:"86400" unit:"seconds" default:"600" audit:"-"`
		// How often it is tried where the agent crashes or its model cannot be reached, with pauses, within timeout_s.
		Attempts *int `json:"attempts,omitzero" min:"1" max:"10" default:"1" audit:"-"`
		// Makes the request idempotent, and names it for cancel. A UUID if missing.
		RequestID *string `json:"request_id,omitzero" min:"1" max:"96" audit:"text"`
	}
	// PlanState is the state of the work. The items are any JSON.
	PlanState struct {
		// Tasks that are done, any JSON.
		CompletedTasks *[]jsontext.Value `json:"completed_tasks,omitzero"`
		// Tasks that are still to be done, any JSON.
		PendingTasks *[]jsontext.Value `json:"pending_tasks,omitzero"`
		// Anything else, any JSON.
		Context jsontext.Value `json:"context,omitzero" wire:"default"`
	}
	// PlanConstraints bound a plan.
	PlanConstraints struct {
		// How many tasks the plan may have.
		MaxTasks *int `json:"max_tasks,omitzero" min:"1" max:"100" default:"100"`
		// The longest estimate that the plan may have, in seconds; without timeout_s also the
		// longest time of the turns.
		TimeLimitSeconds *float64 `json:"time_limit_seconds,omitzero" min:">0" max:"86400" unit:"seconds"`
	}
	// CreatePlanResult is a valid plan.
	CreatePlanResult struct {
		Plan Plan `json:"plan"`
		// Replayed says that it had been made before this request came.
		Replayed bool `json:"replayed,omitzero"`
	}
	// Plan is tasks whose ids are unique and whose dependencies are there and
	// without a cycle.
	Plan struct {
		// The tasks, 1 to 100.
		Tasks []PlanTask `json:"tasks"`
		// The planner's estimate of the whole, in seconds.
		EstimatedTimeSeconds float64 `json:"estimated_time_seconds" wire:"default"`
		// The planner's words.
		Explanation string `json:"explanation" wire:"default"`
	}
	// PlanTask is one task of a plan.
	PlanTask struct {
		// The task's name in the plan: 1 to 64 letters, digits, '.', '_' and '-'.
		ID string `json:"id"`
		// The kind of work.
		Type string `json:"type" enum:"code_generation,refactoring,analysis,testing"`
		// The work, in words.
		Description string `json:"description"`
		// Ids of the tasks that must succeed before this one begins.
		Dependencies []string `json:"dependencies" wire:"default"`
		// Of the tasks that could begin, the one with the lowest priority begins first.
		Priority int `json:"priority" wire:"default" default:"0"`
	}

	// ValidateCodeParams are code to check, which is never run.
	ValidateCodeParams struct {
		// The code. It is never run.
		Code string `json:"code" audit:"-"`
		// The language's name. It must not be empty.
		Language string `json:"language" audit:"-"`
		// Rules to apply, by the checker's own names. At most 256.
		Rules *[]string `json:"rules,omitzero" audit:"-"`
		// How long it may take, waiting included, in seconds.
		TimeoutS *float64 `json:"timeout_s,omitzero" min:">0" max:"600" unit:"seconds" default:"60" audit:"-"`
	}
	// ValidateCodeResult is the result of a checker.
	ValidateCodeResult protocol.CodeResult

	// UpdateContextParams change the notes that agents have beside the conversation.
	UpdateContextParams struct {
		// The change of the note that data names.
		Action string `json:"action" enum:"add,remove,modify" audit:"-"`
		// The kind of the note.
		ContextType string `json:"context_type" enum:"file,dependency,state" audit:"-"`
		// The note: an object with a path, a name or a key.
		Data jsontext.Value `json:"data" schema:"object" audit:"-"`
		// The agent; the default is that of the path, or all agents.
		AgentID *string `json:"agent_id,omitzero" audit:"text"`
	}
	// UpdateContextResult has the outcome for each agent.
	UpdateContextResult struct {
		// Updated says that all agents accepted it.
		Updated bool `json:"updated"`
		// Kept says that the notes of agents made later have changed as well.
		Kept   bool            `json:"kept,omitzero"`
		Agents []ContextUpdate `json:"agents"` // by id
	}
	// ContextUpdate is the outcome of an update in one agent.
	ContextUpdate struct {
		AgentID string `json:"agent_id"`
		Updated bool   `json:"updated"`
		Error   string `json:"error,omitzero"` // why not
	}
)

func (p ExecuteTaskParams) check() error {
	if strings.TrimSpace(p.Prompt) == "" {
		return Invalid("prompt", "is empty")
	}
	if err := p.Context.check(); err != nil {
		return err
	}
	return checkAgentID(p.AgentID)
}

// check checks the context of a task, which may be nil.
func (c *TaskContext) check() error {
	if c == nil || c.CurrentDirectory == nil {
		return nil
	}
	if dir := *c.CurrentDirectory; !path.IsAbs(dir) || strings.Contains(dir, "\x00") {
		return Invalid("context.current_directory", "want an absolute path")
	}
	return nil
}

func (p CreatePlanParams) check() error {
	if strings.TrimSpace(p.UserRequest) == "" {
		return Invalid("user_request", "is empty")
	}
	return checkAgentID(p.AgentID)
}

// rule is the name of a rule of some checker. It becomes part of an argument.
var rule = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_@/.-]{0,99}$`)

func (p ValidateCodeParams) check() error {
	if strings.TrimSpace(p.Language) == "" {
		return Invalid("language", "is empty")
	}
	for i, name := range protocol.Value(p.Rules) {
		if !rule.MatchString(name) {
			return Invalid(fmt.Sprintf("rules[%d]", i), "want the name of a rule")
		}
	}
	if n := len(protocol.Value(p.Rules)); n > MaxRules {
		return Invalid("rules", "want at most %d, have %d", MaxRules, n)
	}
	return nil
}

func (p UpdateContextParams) check() error {
	if p.Data.Kind() != '{' {
		return Invalid("data", "must be an object")
	}
	return checkAgentID(p.AgentID)
}

func checkAgentID(id *string) error {
	if id == nil {
		return nil
	}
	return CheckAgentID(*id)
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
