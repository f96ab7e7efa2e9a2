package task_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/task"
)

const whole = `{"status":"success","code":"x := 1","explanation":"one","extra":5}`

func TestReadAnswer(t *testing.T) {
	want := task.Answer{Status: "success", Code: "x := 1", Explanation: "one"}
	fences := `{"status":"success","code":"x := 1","explanation":"one","doc":"` + "```go\\nf()\\n```\\n~~~" + `"}`
	for name, reply := range map[string]string{
		"fences in its strings":               "```json\n" + fences + "\n```\n",
		"bare":                                whole,
		"after prose":                         "I wrote it.\n\n" + whole + "\n",
		"fenced":                              "Done:\n```json\n" + whole + "\n```\n",
		"fenced plainly":                      "```\n" + whole + "\n```",
		"after code":                          "```go\nfunc f() {\n\tif x {\n\t}\n}\n```\n\n```json\n" + whole + "\n```",
		"after braces":                        "func f()\n{\n}\n" + whole,
		"pretty":                              "So:\n{\n  \"status\": \"success\",\n  \"code\": \"x := 1\",\n  \"explanation\": \"one\"\n}",
		"indented":                            "  " + whole,
		"words after":                         "Done:\n```json\n" + whole + "\n```\nSay if you want {more}.\n",
		"words after, no fence":               whole + "\nAnything else?",
		"spaces after the fence's word":       "``` json  \n" + whole + "\n```  \n\n",
		"line ends of Windows":                "Done:\r\n```json\r\n{\"status\":\"success\",\r\n\"code\":\"x := 1\",\"explanation\":\"one\"}\r\n```\r\n",
		"tildes":                              "~~~json\n" + whole + "\n~~~",
		"of the task by its id":               `{"task_id":"t1",` + whole[1:],
		"four ticks":                          "````json\n" + whole + "\n````",
		"an indented fence":                   "1. Done\n   ```json\n   " + whole + "\n   ```",
		"a fence on one line":                 "```json " + whole + "```",
		"inline code":                         "`" + whole + "`",
		"a byte order mark":                   "\uFEFF" + whole,
		"words before it on its line":         "Here: " + whole + "\n",
		"a fence that is open":                "```json\n" + whole,
		"an example before, of another shape": "```json\n{\"a\":1}\n```\n" + whole,
		"a draft before":                      `{"status":"failed","code":"","explanation":"not yet"}` + "\nNow:\n" + whole,
		"an object of another shape before, words after": "{\n}\n" + whole + "\nBye.",
	} {
		got, err := task.ReadAnswer(reply, "t1")
		if err != nil || got.Status != want.Status || got.Code != want.Code || got.Explanation != want.Explanation {
			t.Errorf("%s: got %+v, %v", name, got, err)
		}
	}
}

func TestReadAnswerRefuses(t *testing.T) {
	for _, tt := range []struct{ name, reply, want string }{
		{"nothing", "", "it does not end with a JSON object"},
		{"prose", "All done.", "it does not end with a JSON object"},
		{"what is wanted", "All done.", "want one object with the members status, code and explanation, on lines of its own, in a fence or not"},
		{"two, and words after", whole + "\nor\n" + whole + "\nAnything else?", "it has 2 JSON objects of the shape, and ends with none"},
		{"cut off", whole[:20], "its JSON is cut off"},
		{"within one that is cut off", "{\"answer\":\n" + whole + "\n", "its JSON is cut off"},
		{"a part of one that is broken", "{\"answer\": nothing,\n" + whole + "\n}\n", "more stands behind its JSON object"},
		{"in a sentence", "It is " + whole + " as I said.", "it does not end with a JSON object"},
		{"a part of one that is broken, behind words", "Here: {\"answer\": nothing, " + whole, "it does not end with a JSON object"},
		{"words on its line", whole + " Done.", "more stands behind its JSON object on the line"},
		{"the last is of another shape", whole + "\n{\"a\":1}", `member "status" is missing`},
		{"not JSON", "{'status':'success'}", "its JSON cannot be read"},
		{"a member is missing", `{"status":"success","code":""}`, `member "explanation" is missing`},
		{"a member of another type", `{"status":"success","code":5,"explanation":""}`, `member "code" must be a string`},
		{"another status", `{"status":"done","code":"","explanation":""}`, `status must be success or failed, is "done"`},
		{"another task's", `{"task_id":"t2","status":"success","code":"","explanation":""}`, `it is the answer to another task: task_id is "t2", and must be "t1"`},
		{"twice", `{"status":"success","status":"failed","code":"","explanation":""}`, "duplicate member"},
	} {
		_, err := task.ReadAnswer(tt.reply, "t1")
		if _, ok := errors.AsType[*task.ShapeError](err); !ok || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %q", tt.name, err, tt.want)
		}
	}
}

func TestReadPlan(t *testing.T) {
	one := func(id, needs string) string {
		return fmt.Sprintf(`{"id":%q,"type":"analysis","description":"d","dependencies":[%s],"priority":1}`, id, needs)
	}
	plan := func(tasks ...string) string {
		return `{"tasks":[` + strings.Join(tasks, ",") + `],"estimated_time_seconds":60,"explanation":"e"}`
	}
	for _, tt := range []struct{ name, reply, want string }{
		{"a diamond", plan(one("a", ""), one("b", `"a"`), one("c", `"a"`), one("d", `"b","c"`)), ""},
		{"wrapped", `{"plan":` + plan(one("a", "")) + `}`, ""},
		{"dependencies before they are defined", plan(one("a", `"b"`), one("b", "")), ""},
		{"none", plan(), "tasks: want 1 to 4, have 0"},
		{"too many", plan(one("a", ""), one("b", ""), one("c", ""), one("d", ""), one("e", "")), "tasks: want 1 to 4, have 5"},
		{"twice", plan(one("a", ""), one("a", "")), `tasks[1].id: "a" is the id of tasks[0] too`},
		{"no such task", plan(one("a", `"z"`)), `tasks[0].dependencies[0]: there is no task "z"`},
		{"of itself", plan(one("a", `"a"`)), "go round in a circle: a -> a"},
		{"a circle", plan(one("x", `"a"`), one("a", `"b"`), one("b", `"c"`), one("c", `"a"`)), "a -> b -> c -> a"},
		{"no such type", strings.Replace(plan(one("a", "")), "analysis", "guessing", 1), "tasks[0].type: want code_generation"},
		{"a bad id", plan(one("a b", "")), "tasks[0].id: want 1 to 64"},
		{"an id that begins with none of them", plan(one("_a", "")), "the first a letter or digit"},
		{"a long id", plan(one(strings.Repeat("x", 65), "")), "tasks[0].id: want 1 to 64"},
		{"too long", strings.Replace(plan(one("a", "")), "60", "61", 1), "estimated_time_seconds: want 0 to 60, have 61"},
		{"no tasks", `{"explanation":""}`, `member "tasks" is missing`},
		{"two faults", plan(one("a", `"z"`), one("a", "")), `too; tasks[0].dependencies[0]: there is`},
	} {
		got, err := task.ReadPlan(tt.reply, 4, 60)
		if tt.want == "" {
			if err != nil || len(got.Tasks) == 0 || got.Tasks[0].Dependencies == nil {
				t.Errorf("%s: got %+v, %v", tt.name, got, err)
			}
			continue
		}
		if _, ok := errors.AsType[*task.ShapeError](err); !ok || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %q", tt.name, err, tt.want)
		}
	}
}

// The shapes that the prompts show are read as what they ask for.
func TestPromptsShowTheShape(t *testing.T) {
	text := task.ExecutePrompt(api.ExecuteTaskParams{
		TaskType: "testing", Prompt: "Test it.",
		Context: &api.TaskContext{Files: &[]string{"a.go"}, Constraints: &[]string{"be quick"}},
		Options: &api.TaskOptions{Language: new("go")},
	}, `t"1`)
	for _, want := range []string{"(testing)", "Test it.", "- a.go\n", "- be quick\n", "Language: go\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("the prompt lacks %q:\n%s", want, text)
		}
	}
	if answer, err := task.ReadAnswer(text, `t"1`); err != nil || answer.Status != "success" || answer.TaskID != `t"1` {
		t.Errorf("its shape is %+v, %v", answer, err)
	}
	params := api.CreatePlanParams{UserRequest: "Build it.", Constraints: &api.PlanConstraints{TimeLimitSeconds: new(300.0)}}
	text = task.PlanPrompt(params, 7)
	for _, want := range []string{"Build it.", "1 to 7 tasks", "within 300 seconds"} {
		if !strings.Contains(text, want) {
			t.Errorf("the prompt lacks %q:\n%s", want, text)
		}
	}
	plan, err := task.ReadPlan(text, 7, task.TimeLimit(params))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"task_001"}, []string{plan.Tasks[0].ID}); diff != "" {
		t.Error(diff)
	}
}

// FuzzReadPlan: whatever a model says, the answer is a plan that holds or a
// fault of bounded length.
func FuzzReadPlan(f *testing.F) {
	f.Add(task.PlanPrompt(api.CreatePlanParams{UserRequest: "x"}, 3))
	f.Add("```json\n{\"plan\":{\"tasks\":[]}}\n```")
	f.Add("{\n{\"tasks\":5}")
	f.Add("~~~ json\r\n{\"tasks\":[{\"id\":\"a\",\"type\":\"testing\",\"description\":\"d\"}]}\r\n~~~\r\nand so on")
	f.Fuzz(func(t *testing.T, reply string) {
		plan, err := task.ReadPlan(reply, 3, 10)
		if err == nil {
			if plan.Problems(3) != nil {
				t.Errorf("a plan with problems: %v", plan.Problems(3))
			}
			return
		}
		if _, ok := errors.AsType[*task.ShapeError](err); !ok || len(err.Error()) > 4096 {
			t.Errorf("got %T of %d bytes", err, len(err.Error()))
		}
	})
}
