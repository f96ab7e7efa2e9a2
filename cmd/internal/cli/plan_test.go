package cli_test

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A failed task is shown with its reason, which stands in the message where the details
// are empty.
func TestPlanTellsWhyATaskFailed(t *testing.T) {
	plan := filepath.Join(t.TempDir(), "plan.json")
	if err := os.WriteFile(plan, []byte(`{"tasks":[{"id":"a","type":"testing","description":"x"}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	end := `{"task_id":"a","status":"failed","error":{"code":-32603,"message":"provider local cannot be reached","type":"EXECUTION_ERROR","details":""}}`
	for _, stream := range []bool{true, false} { // false: the task had ended before
		serve := func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			if stream {
				_, _ = io.WriteString(w, "event: task_end\n"+`data: {"jsonrpc":"2.0","method":"task_end","params":`+end+"}\n\n")
			}
			_, _ = io.WriteString(w, "event: response\n"+`data: {"jsonrpc":"2.0","id":1,"result":{"plan_run_id":"r","status":"failed","tasks":[`+end+"]}}\n\n")
		}
		got := run(t, serve, nil, "plan", plan, "--run", "r")
		if got.status != 1 || got.stdout != "a: failed: provider local cannot be reached\n" || !strings.Contains(got.stderr, "the run ended as failed") {
			t.Errorf("stream %v: got %+v", stream, got)
		}
	}
}
