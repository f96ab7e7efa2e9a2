package bridge_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"nexus.internal/bridge"
	"nexus.internal/bridge/api"
	"nexus.internal/supervisor"
)

func TestExplain(t *testing.T) {
	for _, test := range []struct {
		err     error
		status  int
		code    int
		kind    string
		message string
	}{
		{supervisor.ErrQueueFull, 200, -32001, "QUEUE_FULL", "Resource unavailable"},
		{supervisor.ErrBusy, 200, -32001, "AGENT_BUSY", "Resource unavailable"},
		{supervisor.ErrFailed, 200, -32001, "AGENT_FAILED", "Resource unavailable"},
		{supervisor.ErrStopped, 200, -32001, "AGENT_STOPPED", "Resource unavailable"},
		{&supervisor.CycleError{Path: []string{"a", "a"}}, 200, -32001, "WOULD_DEADLOCK", "Resource unavailable"},
		{supervisor.ErrNoRequest, 200, -32602, "PERMISSION_REQUEST_NOT_FOUND", "Permission request not found"},
		{supervisor.ErrDraining, 503, -32001, "SERVER_DRAINING", "Resource unavailable"},
		{supervisor.ErrTurnTimeout, 200, -32000, "TIMEOUT", "Execution timeout"},
		{context.DeadlineExceeded, 200, -32000, "TIMEOUT", "Execution timeout"},
		{&supervisor.CrashError{Incarnation: 2}, 200, -32000, "CHILD_CRASHED", "Execution failed"},
		{&supervisor.StartError{Err: errors.New("x")}, 200, -32000, "START_FAILED", "Execution failed"},
		{&supervisor.StartError{Err: &supervisor.HandshakeError{Err: errors.New("x")}}, 200, -32000, "START_FAILED", "Execution failed"},
		{&supervisor.StartError{Err: &supervisor.SessionError{Name: "a", InUse: true}}, 200, -32001, "SESSION_IN_USE", "Resource unavailable"},
		{&supervisor.StartError{Err: &supervisor.SessionError{Name: "a"}}, 200, -32000, "SESSION_DAMAGED", "Session damaged: a"},
		{&supervisor.CrashError{Incarnation: 2, Session: &supervisor.SessionError{Name: "a"}}, 200, -32000, "SESSION_DAMAGED", "Session damaged: a"},
		{&supervisor.ChildError{Message: "x"}, 200, -32603, "EXECUTION_ERROR", "x"},
		{&supervisor.CommandError{Err: errors.New("x")}, 200, -32602, "INVALID_PARAMS", "Invalid params: too large for the agent"},
		{api.Invalid("p", "x"), 200, -32602, "INVALID_PARAMS", "Invalid parameter p: x"},
		{
			supervisor.ErrTurnConflict, 200, -32602, "REQUEST_ID_CONFLICT",
			"Invalid parameter request_id: was used before with other content",
		},
		{bridge.Named("a", supervisor.ErrNotFound), 404, -32602, "AGENT_NOT_FOUND", "Agent not found: a"},
		{errors.New("secret"), 200, -32603, "INTERNAL_ERROR", "Internal error"},
	} {
		t.Run(test.kind, func(t *testing.T) {
			status, code, kind, message := bridge.Explain(fmt.Errorf("wrapped: %w", test.err))
			if status != test.status || code != test.code || kind != test.kind || message != test.message {
				t.Errorf("got %d %d %s %q, want %d %d %s %q",
					status, code, kind, message, test.status, test.code, test.kind, test.message)
			}
		})
	}
}

// TestErrorsAreToldOnce looks at every error in fixtures/rpc: details repeat neither
// the message nor a recovery suggestion.
func TestErrorsAreToldOnce(t *testing.T) {
	checked := 0
	err := fs.WalkDir(os.DirFS("../fixtures/rpc"), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := os.ReadFile(filepath.Join("../fixtures/rpc", name))
		for line := range strings.Lines(string(text)) {
			data := gjson.Get(line, "error.data")
			details, message := data.Get("details").String(), gjson.Get(line, "error.message").String()
			if details == "" {
				continue
			}
			checked++
			if strings.Contains(details, message) || strings.Contains(strings.ToLower(message+data.Get("recovery_suggestions").Raw), strings.ToLower(details)) {
				t.Errorf("%s: said twice: %s", name, line)
			}
		}
		return err
	})
	if err != nil || checked < 50 {
		t.Errorf("checked %d errors: %v", checked, err)
	}
}
