package scripted

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"github.com/go-json-experiment/json"

	"nexus.internal/child/provider"
)

// The prompts of the server for tasks and plans (SPEC §6.7), as far as the rules read them.
const (
	taskPrompt = "Carry out this task ("
	planPrompt = "Make a plan for this request."
)

var (
	taskID   = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\{"task_id": ("(?:[^"\\]|\\.)*"), "status"`) })
	language = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\nLanguage: ([\w+#]+)\n`) })
	planSize = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\nThe plan has 1 to (\d+) tasks\.`) })
	planTime = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`\nAll of it must be done within ([0-9.]+) seconds\.`)
	})
)

// hellos are programs that say hello, by language.
var hellos = map[string]string{
	"go":         "package main\n\nimport \"fmt\"\n\nfunc main() { fmt.Println(\"hello\") }\n",
	"javascript": "console.log(\"hello\");\n",
	"python":     "print(\"hello\")\n",
	"shell":      "echo hello\n",
	"typescript": "console.log(\"hello\");\n",
}

// task answers a task by its type: a hello, a passing check, or words.
func task(w *answerWriter, _ provider.Request, prompt string) bool {
	rest, ok := strings.CutPrefix(prompt, taskPrompt)
	kind, _, whole := strings.Cut(rest, ").\n")
	if !ok || !whole {
		return false
	}
	answer := struct {
		TaskID      string `json:"task_id,omitzero"`
		Status      string `json:"status"`
		Code        string `json:"code"`
		Explanation string `json:"explanation"`
	}{Status: "success"}
	if id := taskID().FindStringSubmatch(prompt); id != nil {
		_ = json.Unmarshal([]byte(id[1]), &answer.TaskID) // it was written by encoding a string
	}
	in := "go"
	if named := language().FindStringSubmatch(prompt); named != nil && hellos[strings.ToLower(named[1])] != "" {
		in = strings.ToLower(named[1])
	}
	switch kind {
	case "testing":
		answer.Code, answer.Explanation = "true\n", "A check that passes."
	case "analysis":
		answer.Explanation = "There is nothing to find: I am nexus's offline model, and answer tasks by rules."
	default:
		answer.Code, answer.Explanation = hellos[in], fmt.Sprintf("A hello in %s: I am nexus's offline model, and answer tasks by rules.", in)
	}
	w.sayJSON(answer)
	return true
}

// plan makes a plan of up to three tasks.
func plan(w *answerWriter, _ provider.Request, prompt string) bool {
	rest, ok := strings.CutPrefix(prompt, planPrompt)
	_, rest, whole := strings.Cut(rest, "\n\n")
	if !ok || !whole {
		return false
	}
	request, _, _ := strings.Cut(rest, "\n")
	type step struct {
		ID           string   `json:"id"`
		Type         string   `json:"type"`
		Description  string   `json:"description"`
		Dependencies []string `json:"dependencies"`
		Priority     int      `json:"priority"`
	}
	steps := []step{
		{"analyze", "analysis", "Find out what there is to do: " + request, []string{}, 1},
		{"write", "code_generation", "Write it: " + request, []string{"analyze"}, 2},
		{"test", "testing", "Test it: " + request, []string{"write"}, 3},
	}
	if most := planSize().FindStringSubmatch(prompt); most != nil {
		if n, err := strconv.Atoi(most[1]); err == nil && n < len(steps) {
			steps = steps[:n]
		}
	}
	seconds := float64(len(steps))
	if limit := planTime().FindStringSubmatch(prompt); limit != nil {
		if most, err := strconv.ParseFloat(limit[1], 64); err == nil {
			seconds = min(seconds, most)
		}
	}
	w.sayJSON(struct {
		Tasks       []step  `json:"tasks"`
		Seconds     float64 `json:"estimated_time_seconds"`
		Explanation string  `json:"explanation"`
	}{steps, seconds, "I am nexus's offline model, and divide each request so."})
	return true
}

// sayJSON answers with one line of JSON.
func (w *answerWriter) sayJSON(v any) {
	text, err := json.Marshal(v, json.Deterministic(true))
	if err != nil {
		w.fail(err)
		return
	}
	w.say(string(text), 0)
}
