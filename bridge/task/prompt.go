package task

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"nexus.internal/bridge/api"
	"nexus.internal/protocol"
)

const executeShape = `{"task_id": %s, "status": "success", "code": "the code, or \"\" if there is none to show", "explanation": "what was done and why"}`

const planShape = `{"tasks": [{"id": "task_001", "type": "code_generation", "description": "what is to be done", ` +
	`"dependencies": [], "priority": 1}], "estimated_time_seconds": 120, "explanation": "why it is divided so"}`

// ExecutePrompt asks for the work of one task, which has that id.
func ExecutePrompt(p api.ExecuteTaskParams, id string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Carry out this task (%s).\n\n%s\n", p.TaskType, strings.TrimSpace(p.Prompt))
	if c := p.Context; c != nil {
		list(&b, "Files", protocol.Value(c.Files))
		word(&b, "Current directory", c.CurrentDirectory)
		list(&b, "Dependencies", protocol.Value(c.Dependencies))
		list(&b, "Constraints", protocol.Value(c.Constraints))
	}
	if o := p.Options; o != nil {
		word(&b, "Language", o.Language)
		word(&b, "Framework", o.Framework)
		word(&b, "Style guide", o.StyleGuide)
	}
	b.WriteString("\nUse your tools where they help. When you are done, end your answer with one JSON object of exactly this shape,\n" +
		"and write nothing after it; status is \"failed\" if the task could not be done:\n")
	name, _ := jsontext.AppendQuote(nil, id) // invalid UTF-8 is replaced
	fmt.Fprintf(&b, executeShape+"\n", name)
	return b.String()
}

// PlanPrompt asks for a plan of at most most tasks.
func PlanPrompt(p api.CreatePlanParams, most int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Make a plan for this request. Do not carry it out.\n\n%s\n", strings.TrimSpace(p.UserRequest))
	if s := p.CurrentState; s != nil {
		for _, part := range []struct {
			name  string
			items *[]jsontext.Value
		}{{"Completed tasks", s.CompletedTasks}, {"Pending tasks", s.PendingTasks}} {
			list(&b, part.name, protocol.Value(part.items))
		}
		if len(s.Context) > 0 {
			fmt.Fprintf(&b, "\nContext: %s\n", s.Context)
		}
	}
	fmt.Fprintf(&b, "\nThe plan has 1 to %d tasks. Their ids are unique. type is %s. dependencies are ids of tasks that must be\n"+
		"done before; they must not go round in a circle. A lower priority goes first.\n", most, strings.Join(api.TaskTypes, ", "))
	if limit := TimeLimit(p); limit > 0 {
		fmt.Fprintf(&b, "All of it must be done within %s seconds.\n", strconv.FormatFloat(limit, 'f', -1, 64))
	}
	b.WriteString("End your answer with one JSON object of exactly this shape, and write nothing after it:\n" + planShape + "\n")
	return b.String()
}

// TimeLimit is the most that a plan may be estimated at, in seconds; 0 for no
// bound.
func TimeLimit(p api.CreatePlanParams) float64 {
	if p.Constraints == nil {
		return 0
	}
	return protocol.Value(p.Constraints.TimeLimitSeconds)
}

// RepairPrompt asks for the answer again, after one that was not of the shape.
func RepairPrompt(why error) string {
	return "Your answer could not be used: " + why.Error() + ".\n" +
		"Do not repeat the work. Answer with the corrected JSON object alone.\n"
}

func list[T ~string | ~[]byte](b *strings.Builder, name string, items []T) {
	if len(items) == 0 {
		return
	}
	fmt.Fprintf(b, "\n%s:\n", name)
	for _, item := range items {
		fmt.Fprintf(b, "- %s\n", item)
	}
}

func word(b *strings.Builder, name string, value *string) {
	if protocol.Value(value) != "" {
		fmt.Fprintf(b, "\n%s: %s\n", name, *value)
	}
}
