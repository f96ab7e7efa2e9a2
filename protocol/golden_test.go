package protocol_test

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"nexus.internal/fixtures"
	"nexus.internal/protocol"
)

// goldenCommands and goldenEvents are the Go side of fixtures/frames, by file
// name. A file's name begins with its type; what follows a "-" tells variants
// apart.
var goldenCommands = map[string]protocol.Command{
	"prompt": protocol.Prompt{ID: "1", Message: "hello", Attachments: []protocol.Attachment{}},
	"prompt-attachments": protocol.Prompt{ID: "6f1c", Message: "Zeile 1\nZeile 2 – ∞ 🚀", Attachments: []protocol.Attachment{
		{Path: "/tmp/a.txt"},
		{Path: "/tmp/b.png", Name: new("picture.png"), Mime: new("image/png")},
	}},
	"follow_up":              protocol.FollowUp{ID: "2", Message: "and then?"},
	"prompt-source":          protocol.Prompt{ID: "1", Message: "hello", Attachments: []protocol.Attachment{}, Source: "nexus_send", SourceAgentID: "worker-1"},
	"prompt-traceparent":     protocol.Prompt{ID: "1", Message: "hello", Attachments: []protocol.Attachment{}, Traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
	"compact":                protocol.Compact{ID: "3"},
	"compact-force":          protocol.Compact{ID: "3", Force: true},
	"new_session":            protocol.NewSession{ID: "4"},
	"get_messages":           protocol.GetMessages{ID: "5"},
	"get_messages-compacted": protocol.GetMessages{ID: "6", IncludeCompacted: true},
	"get_messages-page":      protocol.GetMessages{ID: "5", Offset: new(uint64(0)), Limit: new(uint64(1<<64 - 1))},
	"set_model":              protocol.SetModel{ID: "6", Model: "offline"},
	"set_settings": protocol.SetSettings{ID: "6", Settings: protocol.TurnSettings{
		MaxIterations: new(uint64(9)), MaxMessages: new(uint64(100)), CompactAt: new(uint64(0)), ToolTimeoutS: new(3600.0),
		Temperature: new(0.2), MaxOutputTokens: new(uint64(4000)), ReasoningEffort: new("high"), FallbackModel: new("openai/gpt-4.1"),
	}},
	"revoke_allowances":     protocol.RevokeAllowances{ID: "6", Allowances: []protocol.Allowance{{Tool: "read_file", Action: protocol.ActionRead, Dir: "/etc"}}},
	"revoke_allowances-all": protocol.RevokeAllowances{ID: "6"},
	"undo":                  protocol.Undo{ID: "6"},
	"undo-files":            protocol.Undo{ID: "6", Files: true},
	"undo-files-unasked":    protocol.Undo{ID: "6", Files: true, Unasked: true},
	"get_notes":             protocol.GetNotes{ID: "6"},
	"list_jobs":             protocol.ListJobs{ID: "6"},
	"set_tool_output":       protocol.SetToolOutput{ID: "6", On: true},
	"set_settings-none":     protocol.SetSettings{ID: "6"},
	"get_available_models":  protocol.GetAvailableModels{ID: "7"},
	"abort":                 protocol.Abort{ID: "8"},
	"get_session_stats":     protocol.GetSessionStats{ID: "9"},
	"get_state":             protocol.GetState{ID: "10"},
	"tools_list":            protocol.ToolsList{},
	"tools_list-id":         protocol.ToolsList{ID: new("req-42")},
	"tools_list-empty_id":   protocol.ToolsList{ID: new("")},
	"ping":                  protocol.Ping{ID: "11"},
	"set_cwd":               protocol.SetCwd{ID: "12", Cwd: "/srv/work"},
	"set_permissions":       protocol.SetPermissions{ID: "13", Preset: new("sandboxed")},
	"set_permissions-full": protocol.SetPermissions{ID: "13", Permissions: &protocol.Permissions{
		Preset: "trusted", DisabledTools: []string{"shell"}, AllowedPaths: []string{"/srv/data"}, WritePaths: []string{},
		BlockedPaths: []string{"/srv/data/keys"},
		Tools:        map[string]protocol.ToolRule{"write_file": {Mode: "ask", AllowedPaths: []string{"/srv/work/out"}, BlockedPaths: []string{"/srv/work/out/a"}}},
	}},
	"set_system_prompt":         protocol.SetSystemPrompt{ID: "14", SystemPrompt: new("Be brief.")},
	"set_system_prompt-default": protocol.SetSystemPrompt{ID: "14"},
	"update_context":            protocol.UpdateContext{ID: "15", Action: "add", ContextType: "file", Data: jsontext.Value(`{"path":"a.txt"}`)},
	"mcp_connect":               protocol.MCPConnect{ID: "19", Server: "files"},
	"mcp_connect-project":       protocol.MCPConnect{ID: "19", Server: "files", Target: new("files --root .")},
	"mcp_disconnect":            protocol.MCPDisconnect{ID: "20", Server: "files"},
	"permission_response":       protocol.PermissionResponse{ID: "16", RequestID: "p1", Decision: protocol.Deny, Reason: "not that file"},
	"host_result":               protocol.HostResult{ID: "17", CallID: "h1", Result: jsontext.Value(`{"content":"done","request_id":"r1","stop_reason":"completed"}`)},
	"host_result-error":         protocol.HostResult{ID: "18", CallID: "h2", Error: &protocol.HostError{Code: -32602, Message: "Agent not found: a"}},
	"shutdown":                  protocol.Shutdown{},
}

var goldenEvents = map[string]protocol.Event{
	"ready":           protocol.Ready{SessionID: "5f0c", Model: "offline", ProtocolVersion: 1},
	"subagent_start":  protocol.SubagentStart{SubagentID: 1<<64 - 1, AgentName: "helper", TaskPreview: "look for"},
	"subagent_update": protocol.SubagentUpdate{SubagentID: 7, AgentName: "helper", Status: "tool_call"},
	"subagent_done":   protocol.SubagentDone{SubagentID: 7, AgentName: "helper", ResultPreview: "found", DurationSecs: 1.25},
	"agent_end":       protocol.AgentEnd{Usage: protocol.TurnUsage{InputTokens: 12, OutputTokens: 3}},
	"agent_end-full": protocol.AgentEnd{
		Usage: protocol.TurnUsage{
			InputTokens: 1, OutputTokens: 2, CacheReadInputTokens: 3, CacheCreationInputTokens: 4,
			CacheCreation5m: new(uint64(0)), CacheCreation1h: new(uint64(4)), Model: new("offline"),
		},
		StopReason: protocol.StopMaxIterations, TurnID: "1",
	},
	"response": protocol.Response{
		ID: "req-1", Command: "tools_list",
		Body: jsontext.Value(`{"ok":true,"tools":[{"name":"bash","description":"","input_schema":{"type":"object"}}]}`),
	},
	"response-no":            protocol.Response{ID: "", Command: "tools_list", Body: jsontext.Value(`{"ok":false,"error":"no"}`)},
	"error":                  protocol.Error{Message: "frame exceeds the limit of 1048576 bytes"},
	"error-id":               protocol.Error{ID: new("1"), Message: "another prompt is in flight"},
	"session_update":         protocol.SessionUpdate{SessionID: "5f0c", Model: "offline", Provider: "offline", Preset: "trusted", Cwd: "/srv"},
	"session_update-full":    fullUpdate,
	"message_update-text":    update(protocol.TextDelta{Delta: "Grüße \"<&>\"\n\u2028\x00\x7f"}),
	"message_update-think":   update(protocol.ThinkingDelta{Delta: "hm"}),
	"message_update-start":   update(protocol.ToolcallStart{ToolID: "call_1", ToolName: "read_file"}),
	"message_update-partial": update(protocol.ToolcallInputDelta{ToolID: "call_1", Delta: `{"path":`}),
	"message_update-input":   update(protocol.ToolcallInput{ToolID: "call_1", Input: jsontext.Value(`{"path":"a","n":9007199254740993}`)}),
	"message_update-null":    update(protocol.ToolcallInput{ToolID: "call_1", Input: jsontext.Value(`null`)}),
	"message_update-result":  update(protocol.ToolcallResult{ToolID: "call_1", Result: "done"}),
	"message_update-unknown": update(protocol.UnknownAssistantEvent{
		Type: "citation", Raw: jsontext.Value(`{"type":"citation","url":"\u0061"}`),
	}),
	"message_update-output":       update(protocol.ToolcallOutputDelta{ToolID: "call_1", Delta: "ok 1\n"}),
	"message_update-result-error": update(protocol.ToolcallResult{ToolID: "call_1", Result: "no such file", IsError: true}),
	"message_update-fallback":     update(protocol.Fallback{Model: "openai/gpt-4.1", Reason: "anthropic: 529"}),
	"message_update-retry": update(protocol.Retry{
		Reason: "429 Too Many Requests; try 2 of 4 in 500ms", Attempt: 2, MaxAttempts: 4, WaitMS: 500,
	}),
	"message_update-compaction":      update(protocol.CompactionStart{}),
	"message_update-context":         update(protocol.ContextGiven{Reason: "the program does not go on with its conversation", Messages: 12, Omitted: 3}),
	"message_update-foreign":         update(protocol.Foreign{Protocol: "acp", Message: jsontext.Value(`{"sessionUpdate":"plan"}`)}),
	"message_update-compacted":       update(protocol.CompactionEnd{Compacted: true, TokensBefore: 90000, TokensAfter: 1200}),
	"message_update-compaction-none": update(protocol.CompactionEnd{Reason: "a summary would be no shorter"}),
	"permission_request": protocol.PermissionRequest{
		RequestID: "p1", TurnID: "1", ToolID: "call_1", ToolName: "shell", Action: protocol.ActionExecute,
		Summary: "run make", Reason: "trusted asks before a program is run", Input: jsontext.Value(`{"command":"make"}`),
		Paths: []string{"/srv/work"}, Command: "make", Deadline: "2026-01-20T09:11:02Z",
		Decisions: []protocol.Decision{protocol.AllowOnce, protocol.AllowSession, protocol.Deny},
	},
	"permission_request-session": protocol.PermissionRequest{
		RequestID: "p2", TurnID: "1", ToolID: "call_2", ToolName: "write_file", Action: protocol.ActionWrite,
		Summary: "write /srv/a (1 bytes)", Reason: "/srv/a is outside the working directory /srv/work", Input: jsontext.Value(`{"path":"/srv/a","content":"x"}`),
		Paths: []string{"/srv/a"}, Deadline: "2026-01-20T09:11:02Z",
		Decisions:  []protocol.Decision{protocol.AllowOnce, protocol.AllowSession, protocol.Deny},
		ForSession: "write_file, copy_file, patches that only add files: all in /srv and below",
	},
	"permission_end": protocol.PermissionEnd{RequestID: "p1", Outcome: "expired"},
	"host_call":      protocol.HostCall{CallID: "h1", TurnID: "1", Method: "send", Params: jsontext.Value(`{"agent_id":"b","content":"hello"}`)},
	"host_cancel":    protocol.HostCancel{CallID: "h1"},
	"later":          protocol.UnknownEvent{Type: "later", Raw: jsontext.Value(`{"type":"later","n":1.50}`)},
}

var fullUpdate = protocol.SessionUpdate{
	SessionID: "5f0c", Model: "m", Provider: "p", Preset: "yolo", Cwd: "/", MessageCount: 104, TotalTokens: 12345,
	BudgetTokens: 200000, HaltedAtIterationLimit: true, LastActionAt: new("2026-01-20T09:11:02Z"),
}

func update(e protocol.AssistantEvent) protocol.MessageUpdate {
	return protocol.MessageUpdate{Event: e}
}

func TestGoldenCommands(t *testing.T) {
	for name, command := range goldenCommands {
		t.Run(name, func(t *testing.T) {
			file := "frames/commands/" + name + ".json"
			line, err := protocol.AppendCommand(nil, command)
			if err != nil {
				t.Fatal(err)
			}
			fixtures.Golden(t, file, append(line, '\n'))
			got, err := protocol.DecodeCommand(fixtures.Read(t, file))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(command, got); diff != "" {
				t.Errorf("decoded (-want +got):\n%s", diff)
			}
			if typeOf(name) != command.Name() {
				t.Errorf("a %s is kept in %s", command.Name(), file)
			}
		})
	}
	complete(t, "frames/commands", goldenCommands, protocol.CommandTypes())
}

func TestGoldenEvents(t *testing.T) {
	for name, event := range goldenEvents {
		t.Run(name, func(t *testing.T) {
			file := "frames/events/" + name + ".json"
			line, err := protocol.AppendEvent(nil, event)
			if err != nil {
				t.Fatal(err)
			}
			fixtures.Golden(t, file, append(line, '\n'))
			frame, err := protocol.NewFrame(trimNewline(fixtures.Read(t, file)))
			if err != nil {
				t.Fatal(err)
			}
			got, err := frame.Decode()
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(event, got); diff != "" {
				t.Errorf("decoded (-want +got):\n%s", diff)
			}
			if typeOf(name) != event.Name() || frame.Type != event.Name() {
				t.Errorf("a %s is kept in %s and routed as %s", event.Name(), file, frame.Type)
			}
		})
	}
	complete(t, "frames/events", goldenEvents, protocol.EventTypes())
}

// What a server adds is written by its types as its goldens have it, and is read as
// such from a stream, and from a child as an event of no known type.
func TestGoldenServerEvents(t *testing.T) {
	found := map[string]bool{}
	for _, file := range fixtures.Glob(t, "frames/supervisor/*.json") {
		t.Run(path.Base(file), func(t *testing.T) {
			line := trimNewline(fixtures.Read(t, file))
			event, err := protocol.Frame{Raw: line}.DecodeStreamEvent()
			if err != nil {
				t.Fatal(err)
			}
			found[event.Name()] = true
			again, err := protocol.AppendEvent(nil, event)
			if diff := cmp.Diff(string(line), string(again)); diff != "" || err != nil {
				t.Errorf("written (-want +got): %v\n%s", err, diff)
			}
			of, err := protocol.Frame{Raw: line}.Decode()
			if _, unknown := of.(protocol.UnknownEvent); !unknown {
				t.Errorf("a child's would be a %T, %v", of, err)
			}
		})
	}
	for _, event := range protocol.ServerEvents() {
		if !found[event.Name()] {
			t.Errorf("%s has no golden file", event.Name())
		}
	}
}

// TestGoldenAssistantEvents fails if a step of a turn has no golden file.
func TestGoldenAssistantEvents(t *testing.T) {
	var have []string
	for _, event := range goldenEvents {
		if m, ok := event.(protocol.MessageUpdate); ok {
			have = append(have, m.Event.Name())
		}
	}
	for _, name := range protocol.AssistantTypes() {
		if !slices.Contains(have, name) {
			t.Errorf("assistant event %s has no golden file", name)
		}
	}
}

// TestInvalidFrames keeps what each kind of bad line is answered with: the type
// of error, the id that the answer carries, and the words.
func TestInvalidFrames(t *testing.T) {
	for _, file := range fixtures.Glob(t, "frames/invalid/*.json") {
		t.Run(path.Base(file), func(t *testing.T) {
			line := trimNewline(fixtures.Read(t, file))
			var err error
			if strings.HasPrefix(path.Base(file), "event-") {
				_, err = protocol.Frame{Raw: line}.Decode()
			} else {
				_, err = protocol.DecodeCommand(line)
			}
			if err == nil {
				t.Fatal("accepted")
			}
			got := fmt.Sprintf("%T id=%q\n%v\n", err, errorID(err), err)
			fixtures.Golden(t, strings.TrimSuffix(file, ".json")+".err", []byte(got))
		})
	}
}

// complete fails if a file has no Go side or a type has no file.
func complete[V any](t *testing.T, dir string, values map[string]V, types []string) {
	t.Helper()
	missing := map[string]bool{}
	for _, typ := range types {
		missing[typ] = true
	}
	for _, file := range fixtures.Glob(t, dir+"/*") {
		name := strings.TrimSuffix(path.Base(file), ".json")
		if _, ok := values[name]; !ok {
			t.Errorf("%s is compared with nothing", file)
		}
		delete(missing, typeOf(name))
	}
	for typ := range missing {
		t.Errorf("type %s has no golden file in %s", typ, dir)
	}
}

func typeOf(name string) string {
	typ, _, _ := strings.Cut(name, "-")
	return typ
}

func trimNewline(line []byte) []byte {
	return []byte(strings.TrimSuffix(string(line), "\n"))
}
