package child_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/tidwall/gjson"
	"go.uber.org/goleak"

	"nexus.internal/child"
	"nexus.internal/child/journal"
	"nexus.internal/child/prompt"
	"nexus.internal/child/provider"
	"nexus.internal/child/toolenv"
	"nexus.internal/protocol"
	"nexus.internal/protocol/frame"
	"nexus.internal/protocol/transcript"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// puppet is a provider that does what the last message says.
type puppet struct{}

func (puppet) Stream(ctx context.Context, r provider.Request) iter.Seq2[provider.Delta, error] {
	return func(yield func(provider.Delta, error) bool) {
		last := r.Messages[len(r.Messages)-1]
		verb, rest, _ := strings.Cut(last.Content, " ")
		stop := provider.Stop{Usage: protocol.TurnUsage{InputTokens: 10, OutputTokens: 2}}
		if last.Role == protocol.RoleTool && !strings.HasPrefix(r.Messages[len(r.Messages)-3].Content, "loop") {
			_ = yield(provider.Text{Text: "tool said " + last.Content}, nil) && yield(stop, nil)
			return
		}
		if last.Role == protocol.RoleTool {
			verb, rest = "tool", "sleep"
		}
		switch verb {
		case "say":
			_ = yield(provider.Text{Text: rest}, nil) && yield(stop, nil)
		case "long":
			_ = yield(provider.Text{Text: strings.Repeat("é\x01", 400_000)}, nil) && yield(stop, nil)
		case "hang":
			if yield(provider.Text{Text: "partial"}, nil) {
				<-ctx.Done()
				yield(nil, ctx.Err())
			}
		case "break":
			yield(provider.Text{Text: "half an ans"}, nil)
		case "fail":
			_ = yield(provider.Text{Text: "par"}, nil) && yield(nil, errors.New("the service is down"))
		case "panic":
			panic("boom")
		case "tool", "loop":
			call := protocol.ToolCall{ID: "c1", Name: "sleep", Input: jsontext.Value(`{"seconds":0}`)}
			if rest == "stuck" {
				call.Input = jsontext.Value(`{"seconds":3600}`)
			}
			_ = yield(provider.CallStart{ID: call.ID, Name: call.Name}, nil) &&
				yield(provider.CallInput{ID: call.ID, Fragment: string(call.Input)}, nil) &&
				yield(provider.Call{ToolCall: call}, nil) && yield(stop, nil)
		default:
			panic("puppet: " + last.Content)
		}
	}
}

func (puppet) Models(context.Context) ([]protocol.Model, error) { return nil, nil }

// catalogue offers the models a and b of the puppet, and all that begin with
// any.
type catalogue struct{ wait bool }

func (catalogue) Price(name string) (protocol.Price, bool) {
	return map[string]protocol.Price{"puppet/b": {Input: 3, Output: 15}}[name], name == "puppet/a" || name == "puppet/b"
}

func (catalogue) Select(model, _ string) (child.Selected, error) {
	if model != "a" && model != "b" && !strings.HasPrefix(model, "any") {
		return child.Selected{}, fmt.Errorf("unknown model %q", model)
	}
	return child.Selected{Provider: puppet{}, ProviderName: "puppet", Model: model, ContextWindow: 1000, Offline: true}, nil
}

func (c catalogue) List(ctx context.Context) (protocol.AvailableModels, error) {
	if c.wait {
		<-ctx.Done()
		return protocol.AvailableModels{}, ctx.Err()
	}
	return protocol.AvailableModels{Models: []protocol.Model{{Provider: "puppet", ModelID: "a", ModelName: "A", ContextWindow: 1000}}}, nil
}

func options() child.Options {
	start, _ := catalogue{}.Select("a", "")
	return child.Options{
		Models: catalogue{}, Start: start, ToolEnv: at("/"),
		Prompt: prompt.Prompt{Text: "be brief"},
		State:  transcript.State{SessionID: "s1"},
	}
}

// at is an Env in that directory with the tool sleep alone.
func at(dir string) *toolenv.Env {
	others := slices.DeleteFunc(slices.Clone(protocol.BuiltinTools), func(name string) bool { return name == "sleep" })
	w, err := toolenv.Open(toolenv.Options{Cwd: dir, Permissions: protocol.Permissions{DisabledTools: others}})
	if err != nil {
		panic(err)
	}
	return w
}

// testParent is the other end of a child that runs inside a synctest bubble.
type testParent struct {
	t     *testing.T
	stdin *io.PipeWriter
	out   *io.PipeReader
	lines *frame.Reader
	done  chan error
}

func start(t *testing.T, ctx context.Context, o child.Options) *testParent {
	stdin, toChild := io.Pipe()
	fromChild, stdout := io.Pipe()
	p := &testParent{t: t, stdin: toChild, out: fromChild, lines: frame.NewReader(fromChild), done: make(chan error, 1)}
	go func() {
		err := child.Serve(ctx, stdin, stdout, o)
		stdout.Close()
		p.done <- err
	}()
	return p
}

func (p *testParent) send(line string) {
	p.t.Helper()
	if _, err := io.WriteString(p.stdin, line+"\n"); err != nil {
		p.t.Fatalf("write %.80s: %v", line, err)
	}
}

// next reads one frame; io.EOF after the last.
func (p *testParent) next() (string, error) {
	line, err := p.lines.Next()
	return string(line), err
}

// want reads one frame and checks the members that are given.
func (p *testParent) want(members string) string {
	p.t.Helper()
	line, err := p.next()
	if err != nil {
		p.t.Fatalf("want %s, got %v", members, err)
	}
	var got, want map[string]any
	if err := json.Unmarshal([]byte(line), &got); err != nil {
		p.t.Fatalf("frame %q: %v", line, err)
	}
	if err := json.Unmarshal([]byte(members), &want); err != nil {
		p.t.Fatalf("want %q: %v", members, err)
	}
	if path, ok := within(want, got, ""); !ok {
		p.t.Fatalf("member %s differs\n got %.2000s\nwant %s", path, line, members)
	}
	return line
}

// within reports whether got has all that want has. "*" stands for anything
// and null for a member that is missing or null.
func within(want, got any, path string) (string, bool) {
	members, ok := want.(map[string]any)
	if !ok {
		return path, want == "*" && got != nil || fmt.Sprint(want) == fmt.Sprint(got)
	}
	object, ok := got.(map[string]any)
	if !ok {
		return path, false
	}
	for name, value := range members {
		if at, ok := within(value, object[name], path+"."+name); !ok {
			return at, false
		}
	}
	return "", true
}

// play follows a script: "> line" is sent, "< members" must come next, "eof"
// closes stdin, and "end" waits for the end of Serve without an error and closes
// the journal. QUESTION stands for the id of what the child asked last.
func play(t *testing.T, o child.Options, script []string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { playHere(t, o, script) })
}

// playHere is play in a bubble that there is.
func playHere(t *testing.T, o child.Options, script []string) {
	t.Helper()
	p := start(t, t.Context(), o)
	p.want(`{"type":"ready","session_id":"s1","model":"a","protocol_version":1}`)
	question := ""
	for i, step := range append(script, "eof", "end") {
		step = strings.ReplaceAll(step, "QUESTION", question)
		t.Logf("step %d: %.200s", i+1, step)
		switch verb, rest, _ := strings.Cut(step, " "); verb {
		case ">":
			p.send(rest)
		case "<":
			asked := gjson.GetMany(p.want(rest), "request_id", "call_id")
			question = cmp.Or(asked[0].Str, asked[1].Str, question)
		case "eof":
			p.stdin.Close()
		case "end":
			if line, err := p.next(); err != io.EOF {
				t.Fatalf("after the script: %.300s, %v", line, err)
			}
			if err := <-p.done; err != nil {
				t.Fatalf("serve: %v", err)
			}
			_ = o.Journal.Close() // inside the bubble; a test may have done so before
		default:
			t.Fatalf("no such step: %s", step)
		}
	}
}

const (
	text      = `< {"type":"message_update","event":{"type":"text_delta"}}`
	aborted   = `< {"type":"agent_end","stop_reason":"aborted","turn_id":"1"}`
	cancelled = `< {"type":"response","id":"1","command":"prompt","ok":true,"cancelled":true}`
	hang      = `> {"type":"prompt","id":"1","message":"hang"}`
	abort     = `> {"type":"abort","id":"x"}`
	abortOK   = `< {"type":"response","id":"x","command":"abort","ok":true,"error":null}`
	huge      = 400_000
)

func TestServe(t *testing.T) {
	tests := []struct {
		name   string
		script []string
	}{
		{"a turn ends with its response", []string{
			`> {"type":"prompt","id":"1","message":"say hello"}`,
			`< {"type":"message_update","event":{"type":"text_delta","delta":"hello"}}`,
			`< {"type":"agent_end","usage":{"input_tokens":10,"output_tokens":2,"model":"a"},"stop_reason":"completed","turn_id":"1"}`,
			`< {"type":"response","id":"1","command":"prompt","ok":true,"cancelled":null}`,
		}},
		{"a turn of a model whose price is known has a cost", []string{
			`> {"type":"set_model","id":"s","model":"b"}`,
			`< {"type":"response","id":"s","command":"set_model","ok":true}`,
			`> {"type":"prompt","id":"1","message":"say hello"}`, text,
			`< {"type":"agent_end","usage":{"input_tokens":10,"output_tokens":2,"model":"b","cost":0.00006},"stop_reason":"completed","turn_id":"1"}`,
			`< {"type":"response","id":"1","command":"prompt","ok":true}`,
		}},
		{"a failing turn: error, agent_end, response", []string{
			`> {"type":"prompt","id":"1","message":"fail"}`, text,
			`< {"type":"error","id":"1","message":"the service is down"}`,
			`< {"type":"agent_end","stop_reason":"error","turn_id":"1"}`,
			`< {"type":"response","id":"1","ok":false,"error":"the service is down"}`,
			`> {"type":"get_messages","id":"m"}`,
			`< {"id":"m","total":2,"messages":"*"}`,
		}},
		{"an answer that breaks off is a failure", []string{
			`> {"type":"prompt","id":"1","message":"break"}`, text,
			`< {"type":"error","id":"1"}`, `< {"type":"agent_end","stop_reason":"error"}`, `< {"type":"response","id":"1","ok":false}`,
		}},
		{"a panic of the provider is a failure", []string{
			`> {"type":"prompt","id":"1","message":"panic"}`,
			`< {"type":"error","id":"1","message":"the provider panicked: boom"}`,
			`< {"type":"agent_end","stop_reason":"error"}`, `< {"type":"response","id":"1","ok":false}`,
			`> {"type":"ping","id":"p"}`, `< {"type":"response","id":"p","command":"ping","ok":true}`,
		}},
		{"abort: agent_end, response, then its own", []string{
			hang, text, abort, aborted, cancelled, abortOK,
			`> {"type":"prompt","id":"2","message":"say again"}`, text,
			`< {"type":"agent_end","stop_reason":"completed"}`, `< {"type":"response","id":"2","ok":true}`,
		}},
		{"abort twice answers both", []string{
			hang, text, abort, `> {"type":"abort","id":"y"}`, aborted, cancelled, abortOK, `< {"type":"response","id":"y","ok":true}`,
		}},
		{"abort by the id of the turn: one response for one id", []string{
			hang, text, `> {"type":"abort","id":"1"}`, aborted, cancelled, `> {"type":"ping","id":"p"}`, `< {"id":"p"}`,
		}},
		{"abort when idle", []string{abort, abortOK}},
		{"abort of a stuck tool", []string{
			`> {"type":"prompt","id":"1","message":"tool stuck"}`,
			`< {"event":{"type":"toolcall_start","tool_id":"c1","tool_name":"sleep"}}`,
			`< {"event":{"type":"toolcall_input_delta","tool_id":"c1"}}`,
			`< {"event":{"type":"toolcall_input","tool_id":"c1","input":{"seconds":3600}}}`,
			abort,
			`< {"event":{"type":"toolcall_result","tool_id":"c1"}}`,
			aborted, cancelled, abortOK,
		}},
		{"a tool's result goes back to the model", []string{
			`> {"type":"prompt","id":"1","message":"tool sleep"}`,
			`< {"event":{"type":"toolcall_start"}}`, `< {"event":{"type":"toolcall_input_delta"}}`, `< {"event":{"type":"toolcall_input"}}`,
			`< {"event":{"type":"toolcall_result","tool_id":"c1"}}`, text,
			`< {"type":"agent_end","usage":{"input_tokens":20,"output_tokens":4}}`, `< {"type":"response","id":"1","ok":true}`,
		}},
		{"a second prompt is refused and the turn goes on", []string{
			hang, text,
			`> {"type":"prompt","id":"2","message":"say no"}`,
			`< {"type":"error","id":"2","message":"another prompt is in flight; wait for its response, abort it, or send a follow_up"}`,
			abort, aborted, cancelled, abortOK,
		}},
		{"an id in flight is refused", []string{
			hang, text, `> {"type":"follow_up","id":"1","message":"say no"}`, `< {"type":"error","id":"1"}`,
			abort, aborted, cancelled, abortOK,
		}},
		{"follow_up waits, and is a prompt when idle", []string{
			hang, text, `> {"type":"follow_up","id":"2","message":"say two"}`, `> {"type":"get_state","id":"g"}`,
			`< {"type":"response","id":"g","streaming":true,"turn_id":"1","queued":1}`,
			abort, aborted, cancelled, abortOK,
			`< {"event":{"delta":"two"}}`, `< {"type":"agent_end","turn_id":"2"}`, `< {"type":"response","id":"2","command":"follow_up","ok":true}`,
			`> {"type":"follow_up","id":"3","message":"say three"}`,
			`< {"event":{"delta":"three"}}`, `< {"type":"agent_end","turn_id":"3"}`, `< {"type":"response","id":"3","command":"follow_up","ok":true}`,
		}},
		{"the end of stdin lets what was read finish", []string{
			`> {"type":"prompt","id":"1","message":"say one"}`, `> {"type":"follow_up","id":"2","message":"say two"}`, `> {"type":"follow_up","id":"3","message":"say three"}`,
			"eof",
			`< {"event":{"delta":"one"}}`, `< {"type":"agent_end"}`, `< {"type":"response","id":"1"}`,
			`< {"event":{"delta":"two"}}`, `< {"type":"agent_end"}`, `< {"type":"response","id":"2"}`,
			`< {"event":{"delta":"three"}}`, `< {"type":"agent_end"}`, `< {"type":"response","id":"3"}`,
		}},
		{"others are answered while a turn runs", []string{
			hang, text,
			`> {"type":"ping","id":"p"}`, `< {"type":"response","id":"p","ok":true}`,
			`> {"type":"get_messages","id":"m"}`, `< {"type":"response","id":"m","total":1}`,
			`> {"type":"get_session_stats","id":"s"}`, `< {"id":"s","input_tokens":0,"cost":0,"message_count":1,"model":"a","session_id":"s1"}`,
			`> {"type":"tools_list"}`, `< {"type":"response","id":"","command":"tools_list","ok":true,"tools":"*"}`,
			`> {"type":"get_available_models","id":"l"}`, `< {"id":"l","ok":true,"models":"*"}`,
			`> {"type":"set_model","id":"b","model":"b"}`, `< {"id":"b","ok":true,"model":"b","provider":"puppet"}`,
			`> {"type":"compact","id":"c"}`, `< {"type":"response","id":"c","command":"compact","ok":false,"error":"compact is refused while a turn runs","reason":"busy"}`,
			`> {"type":"new_session","id":"n"}`, `< {"type":"response","id":"n","ok":false,"error":"new_session is refused while a turn runs","reason":"busy"}`,
			abort, `< {"type":"agent_end","usage":{"model":"a"}}`, cancelled, abortOK,
		}},
		{"set_model: an unknown one changes nothing", []string{
			`> {"type":"set_model","id":"1","model":"zz"}`, `< {"type":"response","id":"1","command":"set_model","ok":false,"error":"unknown model \"zz\""}`,
			`> {"type":"get_state","id":"2"}`, `< {"id":"2","model":"a"}`,
		}},
		{"set_model: nor does one without a name, or with one that fits no frame", []string{
			`> {"type":"set_model","id":"1","model":""}`, `< {"id":"1","ok":false,"error":"set_model: the name is empty"}`,
			`> {"type":"set_model","id":"2","model":"any` + strings.Repeat("x", 254) + `"}`, `< {"id":"2","ok":false,"error":"set_model: the name is 257 bytes long, at most 256 are allowed"}`,
			`> {"type":"set_model","id":"3","model":"any\n"}`, `< {"id":"3","ok":false,"error":"set_model: the name has a control character"}`,
			`> {"type":"get_state","id":"4"}`, `< {"id":"4","model":"a"}`,
			`> {"type":"set_model","id":"5","model":"any` + strings.Repeat("x", 253) + `"}`, `< {"id":"5","ok":true}`,
		}},
		{"cost: each model at its price, null where one is not known", []string{
			`> {"type":"prompt","id":"1","message":"say hello"}`, text, `< {"type":"agent_end"}`, `< {"type":"response"}`,
			`> {"type":"get_session_stats","id":"s1"}`, `< {"id":"s1","input_tokens":10,"output_tokens":2,"cost":0}`,
			`> {"type":"set_model","id":"b","model":"b"}`, `< {"id":"b","ok":true}`,
			`> {"type":"prompt","id":"2","message":"say hello"}`, text, `< {"type":"agent_end"}`, `< {"type":"response"}`,
			`> {"type":"get_state","id":"s2"}`, `< {"id":"s2","usage":{"input_tokens":20,"output_tokens":4},"cost":0.00006}`,
			`> {"type":"set_model","id":"c","model":"anyone"}`, `< {"id":"c","ok":true}`,
			`> {"type":"get_session_stats","id":"s3"}`, `< {"id":"s3","cost":0.00006}`,
			`> {"type":"prompt","id":"3","message":"say hello"}`, text, `< {"type":"agent_end"}`, `< {"type":"response"}`,
			`> {"type":"get_session_stats","id":"s4"}`, `< {"id":"s4","input_tokens":30,"cost":null}`,
			`> {"type":"new_session","id":"n"}`, `< {"id":"n","ok":true}`,
			`> {"type":"get_session_stats","id":"s5"}`, `< {"id":"s5","input_tokens":0,"cost":0}`,
		}},
		{"new_session forgets", []string{
			`> {"type":"prompt","id":"1","message":"say hello"}`, text, `< {"type":"agent_end"}`, `< {"type":"response"}`,
			`> {"type":"new_session","id":"n"}`, `< {"id":"n","ok":true,"session_id":"*"}`,
			`> {"type":"get_session_stats","id":"s"}`, `< {"id":"s","input_tokens":0,"message_count":0,"turns":0}`,
		}},
		{"compact says why it did nothing", []string{
			`> {"type":"compact","id":"c"}`, `< {"id":"c","ok":true,"compacted":false,"reason":"*","summary":null}`,
		}},
		{"bad lines are answered and the child lives", []string{
			`> {`, `< {"type":"error","id":null}`,
			`> {"type":"ping","id":"1","id":"2"}`, `< {"type":"error","id":null}`,
			`> {"type":"ping","id":"7","x":1,"x":2}`, `< {"type":"error","id":"7"}`,
			`> {"type":"nonsense","id":"3"}`, `< {"type":"error","id":"3","message":"unknown type \"nonsense\""}`,
			`> {"type":"prompt","id":"4"}`, `< {"type":"error","id":"4"}`,
			`> {"id":"5"}`, `< {"type":"error","id":"5"}`,
			"> {\"type\":\"ping\",\"id\":\"\xff\"}", `< {"type":"error","id":null}`,
			`> {"type":"prompt","id":"6","message":"m","attachments":[{"path":"../x"}]}`, `< {"type":"error","id":"6"}`,
			`> {"type":"ping","id":"` + strings.Repeat("i", 4097) + `"}`, `< {"type":"error","id":null,"message":"ping: id is longer than 4096 bytes"}`,
			`> {"type":"prompt","id":"","message":"say no"}`, `< {"type":"error","id":null,"message":"prompt: member \"id\" is empty"}`,
			`> {"type":"tools_list","id":""}`, `< {"type":"response","id":"","command":"tools_list","ok":true}`,
			`> ` + strings.Repeat("x", 1<<20+1), `< {"type":"error","id":null,"message":"frame exceeds the limit of 1048576 bytes"}`,
			`> {"type":"ping","id":"9","future":true}`, `< {"type":"response","id":"9","ok":true}`,
		}},
		{"shutdown aborts the turn and drops what waits", []string{
			hang, text, `> {"type":"follow_up","id":"2","message":"say no"}`, `> {"type":"ping","id":"p"}`, `< {"id":"p"}`,
			`> {"type":"shutdown"}`,
			`< {"type":"error","id":"2","message":"the child is shutting down"}`,
			aborted, cancelled,
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { play(t, options(), tt.script) })
	}
}

func TestFollowUpQueueIsBounded(t *testing.T) {
	script := []string{hang, text}
	for i := range 16 {
		script = append(script, fmt.Sprintf(`> {"type":"follow_up","id":"f%d","message":"say %d"}`, i, i))
	}
	script = append(script, `> {"type":"follow_up","id":"f16","message":"say no"}`,
		`< {"type":"error","id":"f16","message":"16 follow-ups wait already"}`, abort, aborted, cancelled, abortOK)
	for i := range 16 {
		script = append(script, fmt.Sprintf(`< {"event":{"delta":"%d"}}`, i), `< {"type":"agent_end"}`, fmt.Sprintf(`< {"type":"response","id":"f%d"}`, i))
	}
	play(t, options(), script)
}

func TestSessionUpdates(t *testing.T) {
	o := options()
	o.SessionUpdates = true
	play(t, o, []string{
		`< {"type":"session_update","session_id":"s1","model":"a","provider":"puppet","preset":"trusted","cwd":"/","message_count":0,"budget_tokens":1000,"last_action_at":null}`,
		`> {"type":"prompt","id":"1","message":"say hello"}`, text,
		`< {"type":"session_update","message_count":2,"last_action_at":"*"}`,
		`< {"type":"agent_end"}`, `< {"type":"response"}`,
		`> {"type":"set_model","id":"2","model":"b"}`, `< {"type":"session_update","model":"b"}`, `< {"type":"response"}`,
		`> {"type":"new_session","id":"3"}`, `< {"type":"session_update","message_count":0}`, `< {"type":"response"}`,
	})
}

func TestIterationLimit(t *testing.T) {
	o := options()
	o.MaxIterations = 1
	play(t, o, []string{
		`> {"type":"prompt","id":"1","message":"tool sleep"}`,
		`< {"event":{"type":"toolcall_start"}}`, `< {"event":{"type":"toolcall_input_delta"}}`, `< {"event":{"type":"toolcall_input"}}`, `< {"event":{"type":"toolcall_result"}}`,
		`< {"type":"agent_end","stop_reason":"max_iterations"}`, `< {"type":"response","id":"1","ok":true}`,
		`> {"type":"get_state","id":"g"}`, `< {"id":"g","halted_at_iteration_limit":true,"max_iterations":1,"message_count":3}`,
	})
}

func TestCompact(t *testing.T) {
	var script []string
	for i := range 4 {
		script = append(script, fmt.Sprintf(`> {"type":"prompt","id":"%d","message":"say %s"}`, i, strings.Repeat("long words ", 60)), text, `< {"type":"agent_end"}`, `< {"type":"response"}`)
	}
	play(t, options(), append(script,
		`> {"type":"compact","id":"c"}`, `< {"id":"c","ok":true,"compacted":true,"summary":"*","tokens_before":"*","tokens_after":"*"}`,
		`> {"type":"get_messages","id":"m","limit":0}`, `< {"id":"m","total":5,"offset":0}`,
		`> {"type":"compact","id":"d"}`, `< {"id":"d","ok":true,"compacted":false}`,
	))
}

// talked adds four long turns to a conversation.
func talked(o *child.Options) {
	for range 4 {
		for _, role := range []protocol.Role{protocol.RoleUser, protocol.RoleAssistant} {
			o.State.Messages = append(o.State.Messages, protocol.Message{Role: role, Content: strings.Repeat("long words ", 60)})
		}
	}
}

// down is a provider that does not answer.
type down struct{ provider.Provider }

func (down) Stream(context.Context, provider.Request) iter.Seq2[provider.Delta, error] {
	return func(yield func(provider.Delta, error) bool) { yield(nil, errors.New("the service is down")) }
}

// A summary that was asked for is made by rule where the model makes none, and
// the answer says so; none is made because a turn would like one.
func TestCompactByRule(t *testing.T) {
	o := options()
	talked(&o)
	o.Start.Provider, o.Start.Offline, o.Start.ContextWindow, o.CompactAt = down{}, false, 2000, 50
	play(t, o, []string{
		`> {"type":"prompt","id":"1","message":"go"}`, `< {"type":"error","message":"the service is down"}`, `< {"type":"agent_end","stop_reason":"error"}`, `< {"type":"response","id":"1","ok":false}`,
		`> {"type":"get_messages","id":"m","limit":0}`, `< {"id":"m","total":9}`,
		`> {"type":"compact","id":"c"}`, `< {"id":"c","ok":true,"compacted":true,"by":"rule"}`,
		`> {"type":"get_messages","id":"m","limit":0}`, `< {"id":"m","total":4}`,
	})
}

// stuck is a provider that answers nothing until it is stopped.
type stuck struct{ provider.Provider }

func (stuck) Stream(ctx context.Context, _ provider.Request) iter.Seq2[provider.Delta, error] {
	return func(yield func(provider.Delta, error) bool) {
		<-ctx.Done()
		yield(nil, context.Cause(ctx))
	}
}

// What a compaction keeps waiting is told of a compaction: there is no turn to cancel.
func TestRefusedWhileACompactionRuns(t *testing.T) {
	o := options()
	talked(&o)
	o.Start.Provider, o.Start.Offline = stuck{}, false
	play(t, o, []string{
		`> {"type":"compact","id":"c"}`,
		`> {"type":"compact","id":"d"}`, `< {"id":"d","ok":false,"error":"compact is refused while a compaction runs","reason":"busy"}`,
		`> {"type":"new_session","id":"n"}`, `< {"id":"n","ok":false,"error":"new_session is refused while a compaction runs","reason":"busy"}`,
		`> {"type":"abort","id":"a"}`, `< {"id":"c","ok":true,"compacted":false}`, `< {"id":"a","ok":true}`,
	})
}

// What cannot be saved is refused and changes nothing.
func TestAnUnsavedChangeIsNone(t *testing.T) {
	o := options()
	j, _, err := journal.Open(journal.Options{Dir: t.TempDir(), Name: "s"})
	if err != nil {
		t.Fatal(err)
	}
	talked(&o)
	o.Journal = j
	if err := j.Close(); err != nil { // from now on nothing can be saved
		t.Fatal(err)
	}
	play(t, o, []string{
		`> {"type":"new_session","id":"n"}`, `< {"id":"n","ok":false,"error":"save session: the journal is closed"}`,
		`> {"type":"set_model","id":"m","model":"b"}`, `< {"id":"m","ok":false}`,
		`> {"type":"compact","id":"c"}`, `< {"id":"c","ok":false}`,
		`> {"type":"get_session_stats","id":"s"}`, `< {"id":"s","message_count":8,"model":"a","session_id":"s1"}`,
	})
}

// No frame may exceed the limit, whatever the answer grows to when written.
func TestLongAnswersAreSplit(t *testing.T) {
	for _, ascii := range []bool{false, true} {
		t.Run(fmt.Sprint("ascii ", ascii), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := options()
				o.ASCII = ascii
				p := start(t, t.Context(), o)
				p.want(`{"type":"ready"}`)
				p.send(`{"type":"prompt","id":"1","message":"long"}`)
				var got strings.Builder
				for {
					line, err := p.next()
					if err != nil {
						t.Fatal(err)
					}
					if len(line)+1 > frame.MaxWritten {
						t.Fatalf("a frame of %d bytes", len(line)+1)
					}
					event, err := protocol.Frame{Raw: []byte(line)}.Decode()
					if err != nil {
						t.Fatal(err)
					}
					if update, ok := event.(protocol.MessageUpdate); ok {
						got.WriteString(update.Event.(protocol.TextDelta).Delta)
					}
					if _, ok := event.(protocol.Response); ok {
						break
					}
				}
				if want := strings.Repeat("é\x01", huge); got.String() != want {
					t.Errorf("got %d bytes of text, want %d", got.Len(), len(want))
				}
				p.send(`{"type":"get_messages","id":"m","offset":1}`)
				p.want(`{"id":"m","total":2,"offset":1,"ok":true}`)
				line := func() string { p.send(`{"type":"get_messages","id":"m"}`); return p.want(`{"id":"m"}`) }()
				if !strings.Contains(line, `"truncated":true,"size":1200000`) || len(line)+1 > frame.MaxWritten {
					t.Errorf("the long message is not replaced by its head: %d bytes, …%s", len(line), line[len(line)-200:])
				}
				p.stdin.Close()
				if err := <-p.done; err != nil {
					t.Error(err)
				}
			})
		})
	}
}
