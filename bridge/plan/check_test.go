package plan_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/plan"
)

// What no run can have recorded is damage, wherever the record is read: what is done with it relies on what run_plan checks.
func TestImpossibleRecords(t *testing.T) {
	const before, earlier = `{"type":"plan","version":1,"digest":"digest"`, `{"type":"plan","version":1,"digest":"digest"}`
	planned := func(tasks ...string) string { return before + `,"plan":{"tasks":[` + strings.Join(tasks, ",") + `]}}` }
	task := func(id string, needs ...string) string {
		return fmt.Sprintf(`{"id":%q,"type":"testing","description":"x","dependencies":["%s"]}`, id, strings.Join(needs, `","`))
	}
	one := planned(strings.Replace(task("a"), `[""]`, "[]", 1))
	start := func(task string, worker, attempt int, request string) string {
		return fmt.Sprintf(`{"type":"task_start","start":{"task_id":%q,"worker":%d,"request_id":%q,"attempt":%d}}`, task, worker, request, attempt)
	}
	end := func(task, status, agent, request string) string {
		return fmt.Sprintf(`{"type":"task_end","end":{"task_id":%q,"status":%q,"agent_id":%q,"request_id":%q}}`, task, status, agent, request)
	}
	var many, met []string
	for i := range 100_000 {
		many = append(many, strings.Replace(task(fmt.Sprint("t", i)), `[""]`, "[]", 1))
	}
	for i := range 101 {
		met = append(met, end(fmt.Sprint("t", i), "skipped", "", ""))
	}
	for _, tt := range []struct {
		name, want string // "" for a record that can be used
		lines      []string
	}{
		{"a run", "", []string{
			one, start("a", 0, 1, "run/a"), end("a", "failed", ".plan-0123456789abcdef-1", "run/a"), `{"type":"plan_end","status":"failed"}`,
			`{"type":"plan_again","tasks":["a"]}`, start("a", 15, 2, "run/a/2"), end("a", "success", "worker-1", "run/a/2"), `{"type":"plan_end","status":"completed"}`,
		}},
		{"of an earlier version", "", append([]string{earlier, start("x", 3, 1, "run/x")}, met[:99]...)},
		{"a task that needs itself", "circle", []string{planned(task("a", "a"))}},
		{"a task that needs nothing that there is", `there is no task "b"`, []string{planned(task("a", "b"))}},
		{"100,000 tasks", "100 tasks, this one 100000", []string{planned(many...)}},
		{"no task", "want 1 to 100, have 0", []string{planned()}},
		{"a task that is a path", "tasks[0].id", []string{planned(task("../a", "a"))}},
		{"more tasks than a plan has", "more than 100 tasks", append([]string{earlier}, met...)},
		{"a task that the plan has not", `no task "b"`, []string{one, start("b", 0, 1, "run/b")}},
		{"the end of such a task", `no task "b"`, []string{one, end("b", "skipped", "", "")}},
		{"another try at such a task", `no task "b"`, []string{one, `{"type":"plan_again","tasks":["b"]}`}},
		{"an impossible task of an earlier version", "no id of a task", []string{earlier, start("../b", 0, 1, "run/../b")}},
		{"worker -1", "no worker -1", []string{one, start("a", -1, 1, "run/a")}},
		{"worker 2^60", "no worker 1152921504606846976", []string{one, start("a", 1<<60, 1, "run/a")}},
		{"attempt 0", "no attempt 0", []string{one, start("a", 0, 0, "run/a/0")}},
		{"an attempt after which there is none", "no attempt", []string{one, start("a", 0, 1<<62, "run/a/4611686018427387904")}},
		{"a request that is a path", `"../../x" is not the request_id`, []string{one, start("a", 0, 1, "../../x")}},
		{"a request of another run", `"other/a" is not the request_id`, []string{one, start("a", 0, 1, "other/a")}},
		{"a result of another request", `"run/a/02" is not the request_id`, []string{one, end("a", "success", "w", "run/a/02")}},
		{"a result of a request that is a path", `"../../x" is not the request_id`, []string{one, end("a", "success", "w", "../../x")}},
		{"an agent that is a path", `"../../../etc/x\x1b[31m" is no name of an agent`, []string{one, end("a", "success", "../../../etc/x\x1b[31m", "run/a")}},
		{"an end that no task has", "no task ends as", []string{one, end("a", "moon", "w", "run/a")}},
		{"an end that no run has", "no run ends as", []string{one, `{"type":"plan_end","status":"moon"}`}},
		{"no end", "no run ends as", []string{one, `{"type":"plan_end"}`}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "run.jsonl")
			text := strings.ReplaceAll(strings.Join(tt.lines, "\n")+"\n", `\x1b`, `\u001b`)
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			_, looked := plan.Look(path)
			record, opened := plan.Open(path, plan.Identity{Digest: "digest"})
			if opened == nil {
				record.Close()
			}
			for _, err := range []error{looked, opened} {
				damaged, ok := errors.AsType[*api.Error](err)
				if tt.want == "" && err != nil || tt.want != "" && (!ok || damaged.Kind != api.KindPlanRecordDamaged || !strings.Contains(damaged.Details, tt.want)) {
					t.Errorf("got %v, want %q", err, tt.want)
				}
			}
			if after, err := os.ReadFile(path); err != nil || string(after) != text {
				t.Errorf("it was changed, %v", err)
			}
		})
	}
}
