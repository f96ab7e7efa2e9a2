package client_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/client"
)

// A run whose connection breaks is told anew, under the same request_id.
func TestRunPlanStreamGoesOn(t *testing.T) {
	note := func(method, params string) string {
		return "event: " + method + "\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"" + method + "\",\"params\":{\"plan_run_id\":\"r\"," + params + "}}\n\n"
	}
	start := note("plan_start", `"tasks":1,"completed":[]`)
	var got requests
	port := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body := start + note("task_end", `"task_id":"a","status":"success"`) +
			"event: response\ndata: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"plan_run_id\":\"r\",\"status\":\"completed\",\"tasks\":[]}}\n\n"
		if got.take(t, r) == 1 {
			body = start
		}
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, body)
	})
	c, err := client.New(client.Options{Port: port, Key: testKey})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var told []string
	for part, err := range c.RunPlanStream(t.Context(), api.RunPlanParams{}) {
		if err != nil {
			t.Fatal(err)
		}
		switch part := part.(type) {
		case client.PlanResult:
			told = append(told, part.Status)
		case client.TaskEnd:
			told = append(told, part.Name()+" "+part.TaskID)
		default:
			told = append(told, part.Name()+" ")
		}
	}
	if got, want := strings.Join(told, ", "), "plan_start , plan_start , task_end a, completed"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	all := got.all()
	if len(all) != 2 || gjson.Get(all[0], "params.request_id").Str == "" || gjson.Get(all[0], "params").Raw != gjson.Get(all[1], "params").Raw {
		t.Errorf("asked %q", all)
	}
}
