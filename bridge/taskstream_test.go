package bridge_test

import (
	"strings"
	"sync/atomic"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/tidwall/gjson"

	"nexus.internal/bridge/api"
	"nexus.internal/protocol"
	"nexus.internal/supervisor/supervisortest"
)

// toldOf is what a stream of a task tells, a word or two for each notification, and its result.
func (r *rig) toldOf(agent, method string, params map[string]any) (told string, result gjson.Result, err error) {
	var all []string
	raw, err := r.client.CallStream(r.ctx(), agent, method, params, func(line jsontext.Value) error {
		said := gjson.ParseBytes(line)
		word := said.Get("method").Str
		switch data := said.Get("params"); {
		case word == api.StreamStart && data.Get("task_id").Str != params["request_id"]:
			word += " of " + data.Get("task_id").Str
		case word != api.StreamData:
		case data.Get("tool").Exists():
			word = "tool " + data.Get("tool.status").Str
		case data.Get("progress").Exists():
			word = data.Get("progress").Str
		default:
			word = data.Get("chunk").Str
		}
		all = append(all, word)
		return nil
	})
	return strings.Join(all, ", "), gjson.ParseBytes(raw), err
}

// playToolTask says something, calls a tool, and answers; what it says first is not of the shape
// where the prompt asks for that.
func playToolTask(c *supervisortest.Child, p protocol.Prompt) {
	c.Say("I look.")
	c.Emit(protocol.MessageUpdate{Event: protocol.ToolcallStart{ToolID: "c1", ToolName: "read_file"}})
	c.Emit(protocol.MessageUpdate{Event: protocol.ToolcallResult{ToolID: "c1", Result: "no such file", IsError: true}})
	reply := `{"status":"success","code":"","explanation":"done"}`
	switch {
	case strings.Contains(p.Message, "first badly") && !strings.HasPrefix(p.Message, "Your answer could not be used"):
		reply = "Hm."
	case strings.Contains(p.Message, "Make a plan"):
		reply = `{"tasks":[{"id":"t","type":"testing","description":"Test it"}]}`
	}
	c.Say(reply)
	c.Finish(p, reply)
}

// A task is told as it goes: of an agent that is named, and of one of its own; with the turn that
// asks again; and one that had ended by its result alone.
func TestTaskStream(t *testing.T) {
	const answer = `{"status":"success","code":"","explanation":"done"}`
	const works = "I look., tool started, tool ended, "
	r := rigged(t, plays(playToolTask))
	r.create("a")
	for _, tt := range []struct{ agent, method, prompt, want string }{
		{"a", "execute_task", "x", "stream_start, started, " + works + answer + ", stream_end"},
		{"", "execute_task", "x", "stream_start, started, " + works + answer + ", stream_end"},
		{"", "execute_task", "first badly", "stream_start, started, " + works + "Hm., stream_restart, " + works + answer + ", stream_end"},
		{"", "create_plan", "Make a plan", "stream_start, started, " + works + `{"tasks":[{"id":"t","type":"testing","description":"Test it"}]}, stream_end`},
	} {
		params := map[string]any{"task_type": "testing", "prompt": tt.prompt, "request_id": tt.agent + tt.method + tt.prompt}
		if tt.method == "create_plan" {
			params = map[string]any{"user_request": tt.prompt, "request_id": tt.prompt}
		}
		told, result, err := r.toldOf(tt.agent, tt.method, params)
		if told != tt.want || err != nil || !result.Exists() {
			t.Errorf("%s at %q: told %s, result %s, error %v, want %s", tt.method, tt.agent, told, result, err, tt.want)
		}
		if again, result, err := r.toldOf(tt.agent, tt.method, params); again != "" && again != "stream_start, stream_end" || err != nil || !result.Get("replayed").Bool() {
			t.Errorf("%s at %q again: told %s, result %s, error %v", tt.method, tt.agent, again, result, err)
		}
	}
}

// Who joins a task hears of it from its start, and who leaves its stream ends it for nobody.
func TestTaskStreamJoined(t *testing.T) {
	began, release := make(chan struct{}), make(chan struct{})
	var runs atomic.Int64
	r := rigged(t, plays(func(c *supervisortest.Child, p protocol.Prompt) {
		c.Say("early ")
		if runs.Add(1) == 1 {
			close(began)
		}
		<-release
		playTask(c, p)
	}))
	const body = `{"jsonrpc":"2.0","id":1,"method":"execute_task","params":{"task_type":"testing","prompt":"x","request_id":"r"}}`
	conn := r.dial()
	if _, err := conn.Write([]byte(withLength(r.head("POST / HTTP/1.1")+"Accept: text/event-stream\r\nConnection: close\r\n", body))); err != nil {
		t.Fatal(err)
	}
	<-began
	conn.Close()
	var told strings.Builder
	result, err := r.client.CallStream(r.ctx(), "", "execute_task", map[string]any{"task_type": "testing", "prompt": "x", "request_id": "r"},
		func(line jsontext.Value) error {
			if told.Len() == 0 {
				close(release)
			}
			told.WriteString(gjson.GetBytes(line, "method").Str + gjson.GetBytes(line, "params.chunk").Str + " ")
			return nil
		})
	if err != nil || runs.Load() != 1 || gjson.GetBytes(result, "status").Str != "success" {
		t.Errorf("%d runs, result %s, error %v", runs.Load(), result, err)
	}
	if got := told.String(); !strings.HasPrefix(got, "stream_start stream_data stream_dataearly ") || !strings.HasSuffix(got, " stream_end ") {
		t.Errorf("told %s", got)
	}
}

// A task that cannot begin is answered as any other call.
func TestTaskStreamRefused(t *testing.T) {
	r := rigged(t, tasks)
	told, _, err := r.toldOf("", "execute_task", map[string]any{"task_type": "testing", "prompt": "x", "agent_id": "nobody", "request_id": "r"})
	if told != "" || err == nil || !strings.Contains(err.Error(), "nobody") {
		t.Errorf("told %q, error %v", told, err)
	}
}

// A send that waits behind a task and is cancelled ends nothing of what is told of the task.
func TestTaskStreamBesideACancelledSend(t *testing.T) {
	began, release := make(chan struct{}), make(chan struct{})
	r := rigged(t, plays(func(c *supervisortest.Child, p protocol.Prompt) {
		close(began)
		<-release
		c.Say("so ")
		playTask(c, p)
	}))
	r.create("a")
	go func() {
		<-began
		waits := r.sendAsync("a", api.SendParams{Content: "go", RequestID: new("waits")})
		r.queued("a", 1)
		r.post("/agent/a", `{"jsonrpc":"2.0","id":1,"method":"cancel","params":{"request_id":"waits"}}`)
		r.await(waits)
		close(release)
	}()
	told, _, err := r.toldOf("a", "execute_task", map[string]any{"task_type": "testing", "prompt": "x", "request_id": "r"})
	if err != nil || !strings.HasPrefix(told, "stream_start, started, so ") {
		t.Errorf("told %s, error %v", told, err)
	}
}
