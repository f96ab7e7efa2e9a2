package transcript_test

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/tidwall/gjson"

	"nexus.internal/fixtures"
	"nexus.internal/protocol"
	"nexus.internal/protocol/transcript"
)

var at = time.Date(2026, 1, 2, 3, 4, 5, 678_000_000, time.UTC)

func ptr[T any](v T) *T { return &v }

// every is one record of each kind, in an order that makes a session.
var every = []transcript.Record{
	transcript.Header{Version: 1, SessionID: "11111111-2222-4333-8444-555555555555", Name: "worker-1", CreatedAt: at},
	transcript.Settings{Model: ptr("offline"), Provider: ptr("offline"), Cwd: ptr("/srv/work"), SystemPrompt: ptr("Be brief."), SystemPromptPath: ptr("/srv/work/NEXUS.md"), Permissions: &protocol.Permissions{Preset: "trusted", WritePaths: []string{"/srv/out"}, Tools: map[string]protocol.ToolRule{"shell": {Mode: "ask"}}}, Ceiling: &protocol.Permissions{Preset: "trusted"}, ParentAgentID: ptr("main"), Depth: new(uint64(1)), Approvals: ptr("ask"), At: at},
	transcript.Message{Message: protocol.Message{Role: protocol.RoleUser, Content: "read a.txt", TurnID: "1", At: at}},
	transcript.Partial{TurnID: "1", Text: "I will ", Thinking: "Which file?"},
	transcript.Message{
		Message: protocol.Message{
			Role: protocol.RoleAssistant, Content: "I will read it.", Thinking: "Which file?", TurnID: "1", At: at,
			ToolCalls: []protocol.ToolCall{{ID: "c1", Name: "read_file", Input: []byte(`{"path":"a.txt"}`)}},
		},
		Usage: &protocol.TurnUsage{InputTokens: 10, OutputTokens: 5, Model: ptr("offline")},
	},
	transcript.Message{Message: protocol.Message{Role: protocol.RoleTool, Content: "no such file", ToolCallID: "c1", ToolName: "read_file", IsError: true, TurnID: "1", Changed: []string{"/srv/work/a.txt"}, At: at}},
	transcript.TurnEnd{TurnID: "1", Outcome: "error", Error: "the service is down", Usage: protocol.TurnUsage{InputTokens: 10, OutputTokens: 5}, At: at},
	transcript.Compaction{Dropped: 3, Summary: protocol.Message{Role: protocol.RoleUser, Content: "Summary", At: at}, TokensBefore: 50, TokensAfter: 20, Usage: &protocol.TurnUsage{InputTokens: 1, OutputTokens: 2}, At: at},
	transcript.Allowance{Allowance: protocol.Allowance{Tool: "shell", Action: protocol.ActionExecute, Dir: "/srv/work", Programs: []string{"make"}}, At: at},
	transcript.Note{Key: "file:a.txt", Data: []byte(`{"path":"a.txt"}`), At: at},
	transcript.Note{Key: "file:a.txt", At: at},
	transcript.Settings{PromptLayers: true, At: at},
	transcript.Reset{SessionID: "66666666-7777-4888-8999-000000000000", At: at},
}

func encode(t *testing.T, records ...transcript.Record) []byte {
	t.Helper()
	var data []byte
	for _, r := range records {
		line, err := transcript.Append(data, r)
		if err != nil {
			t.Fatal(err)
		}
		data = append(line, '\n')
	}
	return data
}

func TestEveryRecordHasItsLine(t *testing.T) {
	data := encode(t, every...)
	fixtures.Golden(t, "sessions/every-record.jsonl", data)
	for i, line := range bytes.Split(bytes.TrimSuffix(data, []byte("\n")), []byte("\n")) {
		got, err := transcript.Decode(line)
		if err != nil {
			t.Fatalf("line %d: %v", i+1, err)
		}
		if diff := cmp.Diff(every[i], got); diff != "" {
			t.Errorf("line %d (-want +got):\n%s", i+1, diff)
		}
	}
}

// Messages and the ends of turns are written by hand: as the general encoder writes them, with
// each of their fields.
func TestLinesByHand(t *testing.T) {
	usage := protocol.TurnUsage{InputTokens: 1, OutputTokens: 2, Estimated: true}
	message := protocol.Message{Role: protocol.RoleUser, Content: "a", At: at}
	for _, r := range []transcript.Record{
		transcript.Message{Message: message, Usage: &usage},
		transcript.TurnEnd{TurnID: "1", Outcome: "error", Error: "<\u00e9>", Usage: usage, At: at},
		transcript.Message{},
		transcript.TurnEnd{},
		transcript.TurnEnd{At: at.In(time.FixedZone("", 3600))},
		transcript.TurnEnd{TurnID: "\xff"},
		transcript.Message{Message: protocol.Message{Content: "\xff"}},
	} {
		members, wantErr := json.Marshal(r)
		got, err := transcript.Append(nil, r)
		if (err == nil) != (wantErr == nil) {
			t.Errorf("%#v: error %v, of the general encoder %v", r, err, wantErr)
		}
		if err != nil {
			continue
		}
		if want := `{"type":"` + r.Kind() + `",` + string(members[1:]); string(got) != want {
			t.Errorf("got\n%s, want\n%s", got, want)
		}
	}
	for _, whole := range []transcript.Record{transcript.Message{Message: message, Usage: &usage}, transcript.TurnEnd{TurnID: "1", Outcome: "error", Error: "e", Reason: "r", LeftOut: true, Usage: usage, At: at}} {
		line, err := transcript.Append(nil, whole)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := int(gjson.GetBytes(line, "@keys.#").Int()), 1+reflect.TypeOf(whole).NumField(); got != want {
			t.Errorf("%s has %d members, want the type and all %d fields", line, got, want-1)
		}
	}
}

func TestParse(t *testing.T) {
	header, user, end := every[0], every[2], every[6]
	tests := []struct {
		name     string
		records  []transcript.Record
		messages int
		session  string
		outcome  transcript.Outcome
		input    uint64
	}{
		{"a header alone", every[:1], 0, "11111111-2222-4333-8444-555555555555", "", 0},
		{"a whole turn", every[:7], 3, "11111111-2222-4333-8444-555555555555", "error", 10},
		{"a compaction", every[:8], 1, "11111111-2222-4333-8444-555555555555", "error", 11},
		{"a reset", every, 0, "66666666-7777-4888-8999-000000000000", "", 0},
		{"a record of the future", []transcript.Record{header, transcript.Unknown{Type: "later", Raw: []byte(`{"type":"later","x":1}`)}, user, end}, 1, "11111111-2222-4333-8444-555555555555", "error", 10},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			data := encode(t, tt.records...)
			s, good, err := transcript.Parse(bytes.NewReader(data))
			if err != nil || good != int64(len(data)) {
				t.Fatalf("good %d of %d, %v", good, len(data), err)
			}
			if len(s.Messages) != tt.messages || s.SessionID != tt.session || s.LastOutcome != tt.outcome || s.Usage.InputTokens != tt.input {
				t.Errorf("got %d messages, session %s, outcome %q, %d input tokens", len(s.Messages), s.SessionID, s.LastOutcome, s.Usage.InputTokens)
			}
			if fix := s.Repair(at); fix != nil {
				t.Errorf("a session without an open turn is repaired by %v", fix)
			}
		})
	}
}

// What a turn cost in all is counted once, also where an answer was cut off of
// which nothing was kept; and the layers of the prompt take back what was said.
func TestUsageAndPrompt(t *testing.T) {
	end := every[6].(transcript.TurnEnd)
	end.Usage.OutputTokens += 7
	s, _, err := transcript.Parse(bytes.NewReader(encode(t, append(slices.Clone(every[:6]), end, every[7], every[11])...)))
	if err != nil {
		t.Fatal(err)
	}
	want := protocol.TurnUsage{InputTokens: 11, OutputTokens: 14, Model: ptr("offline")}
	if diff := cmp.Diff(want, s.Usage); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if s.Settings.SystemPrompt != nil || s.Settings.SystemPromptPath != nil || s.Settings.Cwd == nil {
		t.Errorf("got %+v", s.Settings)
	}
}

// What was used is known for each model of the settings then, until a reset.
func TestUsageByModel(t *testing.T) {
	used := func(input uint64) transcript.TurnEnd {
		return transcript.TurnEnd{TurnID: "1", Outcome: "completed", Usage: protocol.TurnUsage{InputTokens: input}, At: at}
	}
	records := []transcript.Record{
		every[0],
		transcript.Settings{Provider: ptr("p"), Model: ptr("a"), At: at},
		used(1),
		transcript.Settings{Model: ptr("b"), At: at},
		used(2),
		transcript.Settings{Model: ptr("a"), At: at},
		used(4),
	}
	s, _, err := transcript.Parse(bytes.NewReader(encode(t, records...)))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]protocol.TurnUsage{"p/a": {InputTokens: 5}, "p/b": {InputTokens: 2}}, s.ByModel); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	s, _, err = transcript.Parse(bytes.NewReader(encode(t, append(records, transcript.Reset{SessionID: "s2", At: at})...)))
	if err != nil || len(s.ByModel) > 0 {
		t.Errorf("after a reset: %v, %v", s.ByModel, err)
	}
}

func TestParseFaults(t *testing.T) {
	sound := string(encode(t, every[:7]...))
	lines := strings.SplitAfter(sound, "\n")
	tests := []struct {
		name string
		data string
		good int
		line int // of the error; 0 for none
	}{
		{"a torn last line", sound + `{"type":"mess`, len(sound), 0},
		{"zeros after a crash of the machine", sound + "\x00\x00\x00", len(sound), 0},
		{"a damaged last line", sound + "{]\n", 0, 8},
		{"a last line that cannot stand there", sound + lines[0], 0, 8},
		{"zeros for a line", sound + "\x00\x00\n", 0, 8},
		{"a last line without its newline", strings.TrimSuffix(sound, "\n"), len(sound) - 1, 0},
		{"a header torn early", lines[0][:5], 0, 0},
		{"a header torn late", lines[0][:len(lines[0])-2], 0, 0},
		{"a header torn into zeros", lines[0][:40] + "\x00\x00", 0, 0},
		{"zeros alone", "\x00\x00\x00", 0, 0},
		{"a damaged header", strings.Replace(lines[0], "session_id", "sessiom_id", 1), 0, 1},
		{"a header that was damaged and torn", `{"type":"sessiom","version":1,`, 0, 1},
		{"notes", "my only copy of notes", 0, 1},
		{"a line of notes", "hello\n", 0, 1},
		{"another program's file", `{"type":"later"}`, 0, 1},
		{"zeros, then notes", "\x00\x00notes", 0, 1},
		{"nothing", "", 0, 0},
		{"damage in the middle", lines[0] + "{]\n" + lines[2], 0, 2},
		{"a member that is missing", lines[0] + `{"type":"reset"}` + "\n" + lines[2], 0, 2},
		{"no header", lines[2] + lines[2], 0, 1},
		{"a second header", lines[0] + lines[0] + lines[2], 0, 2},
		{"a compaction of more than there is", lines[0] + string(encode(t, every[7])) + lines[2], 0, 2},
		{"a later version", strings.Replace(lines[0], `"version":1`, `"version":2`, 1), 0, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, good, err := transcript.Parse(bytes.NewReader([]byte(tt.data)))
			if tt.line == 0 {
				if err != nil || good != int64(tt.good) {
					t.Errorf("got good %d, %v, want %d", good, err, tt.good)
				}
				return
			}
			fault, ok := errors.AsType[*transcript.LineError](err)
			if !ok || fault.Line != tt.line {
				t.Errorf("got %v, want an error in line %d", err, tt.line)
			}
		})
	}
	_, _, err := transcript.Parse(bytes.NewReader([]byte("hello")))
	if !errors.Is(err, transcript.ErrNoSession) {
		t.Errorf("got %v, want %v", err, transcript.ErrNoSession)
	}
	_, _, err = transcript.Parse(bytes.NewReader([]byte(tests[len(tests)-1].data)))
	if v, ok := errors.AsType[*transcript.VersionError](err); !ok || v.Got != 2 {
		t.Errorf("got %v, want a version error", err)
	}
}

// A process that is killed leaves its turn open at any record.
func TestRepair(t *testing.T) {
	interrupted := protocol.Message{Role: protocol.RoleAssistant, Content: "I will ", Thinking: "Which file?", TurnID: "1", Interrupted: true, At: at}
	unanswered := protocol.Message{Role: protocol.RoleTool, Content: "interrupted: the process ended before the result was known", ToolCallID: "c1", ToolName: "read_file", IsError: true, TurnID: "1", At: at}
	tests := []struct {
		name string
		upTo int // records that were written
		want []protocol.Message
	}{
		{"before the answer", 3, nil},
		{"in the answer", 4, []protocol.Message{interrupted}},
		{"in the tool", 5, []protocol.Message{unanswered}},
		{"after the tool", 6, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			data := encode(t, every[:tt.upTo]...)
			s, _, err := transcript.Parse(bytes.NewReader(data))
			if err != nil {
				t.Fatal(err)
			}
			before := len(s.Messages)
			fix := s.Repair(at)
			if diff := cmp.Diff(tt.want, s.Messages[before:], cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("messages (-want +got):\n%s", diff)
			}
			if s.LastOutcome != transcript.Interrupted {
				t.Errorf("outcome %q", s.LastOutcome)
			}
			again, _, err := transcript.Parse(bytes.NewReader(append(data, encode(t, fix...)...)))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(s, again, cmp.AllowUnexported(transcript.State{}), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("the file says something else (-state +file):\n%s", diff)
			}
		})
	}
}

// Whatever a file holds, what is kept of it parses to the same state again,
// with nothing more to cut off, and its repair leaves no turn open.
func FuzzParse(f *testing.F) {
	f.Add(fixtures.Read(f, "sessions/every-record.jsonl"))
	f.Add(fixtures.Read(f, "sessions/checkpoints.jsonl"))
	f.Add(compacted(f, 4, 10))
	f.Add([]byte("{\"type\":\"session\",\"version\":1,\"session_id\":\"\",\"created_at\":\"2026-01-02T03:04:05Z\"}\n\n{"))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, good, err := transcript.Parse(bytes.NewReader(data))
		if err != nil {
			return
		}
		if good < 0 || good > int64(len(data)) {
			t.Fatalf("good is %d of %d", good, len(data))
		}
		again, same, err := transcript.Parse(bytes.NewReader(data[:good]))
		if err != nil || same != good {
			t.Fatalf("kept %d bytes, then %d, %v", good, same, err)
		}
		if diff := cmp.Diff(s, again, cmp.AllowUnexported(transcript.State{})); diff != "" {
			t.Fatal(diff)
		}
		s.Repair(at)
		if fix := s.Repair(at); fix != nil {
			t.Fatalf("repaired twice: %v", fix)
		}
	})
}

// What is decoded is encoded to a line that decodes to the same.
func FuzzDecode(f *testing.F) {
	for _, line := range bytes.Split(fixtures.Read(f, "sessions/every-record.jsonl"), []byte("\n")) {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		r, err := transcript.Decode(line)
		if err != nil {
			return
		}
		written, err := transcript.Append(nil, r)
		if err != nil {
			t.Fatalf("%#v cannot be written: %v", r, err)
		}
		again, err := transcript.Decode(written)
		if err != nil {
			t.Fatalf("%s cannot be read: %v", written, err)
		}
		once, twice := fmt.Sprintf("%#v", r), fmt.Sprintf("%#v", again)
		if diff := cmp.Diff(r, again, cmpopts.EquateEmpty()); diff != "" && once != twice {
			t.Fatalf("(-first +second):\n%s", diff)
		}
	})
}

func ExampleParse() {
	data := []byte(`{"type":"session","version":1,"session_id":"s1","created_at":"2026-01-02T03:04:05Z"}
{"type":"message","message":{"role":"user","content":"My name is Alice","turn_id":"1","at":"2026-01-02T03:04:05Z"}}
{"type":"partial","turn_id":"1","text":"Nice to meet"}
{"type":"part`)
	state, good, err := transcript.Parse(bytes.NewReader(data))
	if err != nil {
		panic(err)
	}
	state.Repair(time.Date(2026, 1, 2, 3, 4, 6, 0, time.UTC))
	fmt.Println(len(data)-int(good), "bytes were torn")
	for _, m := range state.Messages {
		fmt.Println(m.Role, m.Content, m.Interrupted)
	}
	// Output:
	// 13 bytes were torn
	// user My name is Alice false
	// assistant Nice to meet true
}

// What was allowed and noted comes back with the session, the latest note of
// each key, and goes with the conversation; the permissions stay.
func TestAllowancesAndNotes(t *testing.T) {
	note := func(key, data string) transcript.Note { return transcript.Note{Key: key, Data: []byte(data), At: at} }
	allowed := protocol.Allowance{Tool: "shell", Action: protocol.ActionExecute, Programs: []string{"make"}}
	ceiling := &protocol.Permissions{Preset: "sandboxed"}
	records := []transcript.Record{
		every[0],
		transcript.Settings{Permissions: ceiling, Ceiling: ceiling, At: at},
		transcript.Settings{Model: ptr("m"), At: at},
		transcript.Allowance{Allowance: allowed, At: at},
		note("state:a", `1`), note("state:b", `2`), note("state:a", `3`),
		transcript.Note{Key: "state:b", At: at},
		transcript.Note{Key: "state:none", At: at},
	}
	s, _, err := transcript.Parse(bytes.NewReader(encode(t, records...)))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]protocol.Allowance{allowed}, s.Allowances); diff != "" {
		t.Errorf("allowances (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]transcript.Note{note("state:a", `3`)}, s.Notes); diff != "" {
		t.Errorf("notes (-want +got):\n%s", diff)
	}
	s, _, err = transcript.Parse(bytes.NewReader(encode(t, append(records, transcript.Reset{SessionID: "other", At: at})...)))
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Allowances)+len(s.Notes) != 0 || s.Settings.Permissions == nil || s.Settings.Ceiling == nil {
		t.Errorf("after a reset: %+v", s)
	}
}
