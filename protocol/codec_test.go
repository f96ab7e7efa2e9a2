package protocol_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"nexus.internal/protocol"
	"nexus.internal/protocol/strict"
)

// errorID is the id that an answer to a bad line carries.
func errorID(err error) string {
	if e, ok := errors.AsType[*protocol.SyntaxError](err); ok {
		return e.ID
	}
	if e, ok := errors.AsType[*protocol.UnknownTypeError](err); ok {
		return e.ID
	}
	if e, ok := errors.AsType[*protocol.MemberError](err); ok {
		return e.ID
	}
	return fmt.Sprintf("no id in a %T", err)
}

func TestDecodeCommandAccepts(t *testing.T) {
	tests := []struct {
		name string
		line string
		want protocol.Command
	}{
		{"attachments may be missing", `{"type":"prompt","id":"1","message":""}`, protocol.Prompt{ID: "1"}},
		{"type may come last", `{"id":"1","type":"abort"}`, protocol.Abort{ID: "1"}},
		{"space is free", " { \"type\" :\t\"abort\" , \"id\":\"1\" } ", protocol.Abort{ID: "1"}},
		{"escaped names are names", `{"\u0074ype":"\u0061bort","i\u0064":"\u0031"}`, protocol.Abort{ID: "1"}},
		{"unknown members are ignored", `{"type":"abort","id":"1","Id":2,"x":{"id":[{}]}}`, protocol.Abort{ID: "1"}},
		{"an optional member may be null", `{"type":"tools_list","id":null}`, protocol.ToolsList{}},
		{"shutdown needs no id", `{"type":"shutdown","id":17}`, protocol.Shutdown{}},
		{
			"optional hints may be null", `{"type":"prompt","id":"","message":"m","attachments":[{"path":"p","name":null}]}`,
			protocol.Prompt{Message: "m", Attachments: []protocol.Attachment{{Path: "p"}}},
		},
		{
			"counts are 64 bits wide", `{"type":"get_messages","id":"1","offset":18446744073709551615}`,
			protocol.GetMessages{ID: "1", Offset: new(uint64(math.MaxUint64))},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := protocol.DecodeCommand([]byte(tt.line))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestDecodeEventAccepts(t *testing.T) {
	tests := []struct {
		name string
		line string
		want protocol.Event
	}{
		{
			"cache counts may be missing", `{"type":"agent_end","usage":{"input_tokens":1,"output_tokens":2}}`,
			protocol.AgentEnd{Usage: protocol.TurnUsage{InputTokens: 1, OutputTokens: 2}},
		},
		{"an error's id may be null", `{"type":"error","id":null,"message":"m"}`, protocol.Error{Message: "m"}},
		{
			"a duration may be an integer", `{"type":"subagent_done","subagent_id":0,"agent_name":"","result_preview":"","duration_secs":2}`,
			protocol.SubagentDone{DurationSecs: 2},
		},
		{
			"a response may have no members of its own", `{"type":"response","id":"","command":"x"}`,
			protocol.Response{Command: "x", Body: jsontext.Value(`{}`)},
		},
		{
			"a response's body keeps its order and its numbers",
			`{"z":1.0,"command":"x","y":12345678901234567890,"type":"response","id":"1","a":"\u0041"}`,
			protocol.Response{ID: "1", Command: "x", Body: jsontext.Value(`{"z":1.0,"y":12345678901234567890,"a":"\u0041"}`)},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := protocol.Frame{Raw: []byte(tt.line)}.Decode()
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestMemberErrorNamesNestedMember(t *testing.T) {
	_, err := protocol.DecodeCommand([]byte(`{"type":"prompt","id":"1","message":"m","attachments":[{"path":"a"},{"path":7}]}`))
	fault, ok := errors.AsType[*strict.Error](err)
	if !ok || fault.Path != "attachments[1].path" || !strings.Contains(fault.Problem, "string") {
		t.Errorf("got %v, want attachments[1].path", err)
	}
}

func TestAppendEventRefuses(t *testing.T) {
	tests := []struct {
		name  string
		event protocol.Event
		want  string // in the error
	}{
		{"text that is not UTF-8", update(protocol.TextDelta{Delta: "a\xff"}), "invalid UTF-8"},
		{"other strings that are not UTF-8", protocol.Error{Message: "\xc3"}, "invalid UTF-8"},
		{"a duration that is no number", protocol.SubagentDone{DurationSecs: math.NaN()}, "encode subagent_done"},
		{"a body that is an array", protocol.Response{Command: "x", Body: jsontext.Value(`[]`)}, "not a JSON object"},
		{"a body that is cut off", protocol.Response{Command: "x", Body: jsontext.Value(`{"a":`)}, "unexpected EOF"},
		{"a body with two values", protocol.Response{Command: "x", Body: jsontext.Value(`{},{}`)}, "encode response to x"},
		{"a body with an id", protocol.Response{Command: "x", Body: jsontext.Value(`{"ok":true,"id":1}`)}, `member "id"`},
		{"a body with an escaped type", protocol.Response{Command: "x", Body: jsontext.Value(`{"\u0074ype":1}`)}, `member "type"`},
		{"a body with a member twice", protocol.Response{Command: "x", Body: jsontext.Value(`{"a":1,"a":2}`)}, "duplicate"},
		{"an input that is not JSON", update(protocol.ToolcallInput{Input: jsontext.Value(`{`)}), "encode toolcall_input"},
		{"an unknown step that is not JSON", update(protocol.UnknownAssistantEvent{Type: "t", Raw: jsontext.Value(`}`)}), "encode t"},
		{"an unknown event that is not JSON", protocol.UnknownEvent{Type: "t", Raw: jsontext.Value(``)}, "encode t"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := protocol.AppendEvent([]byte("before"), tt.event)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got error %v, want one with %q", err, tt.want)
			}
			if string(got) != "before" {
				t.Errorf("got %q, want what was there before", got)
			}
		})
	}
}

// TestAppendEventStaysOnOneLine: a raw value with newlines in it would split
// the frame.
func TestAppendEventStaysOnOneLine(t *testing.T) {
	spread := jsontext.Value("\n{\r\n\t\"a\" : [ 1.0 ,\n2 ]\n}\n")
	tests := []struct {
		event protocol.Event
		want  string
	}{
		{protocol.Response{ID: "1", Command: "x", Body: spread}, `{"type":"response","id":"1","command":"x","a":[1.0,2]}`},
		{protocol.UnknownEvent{Type: "t", Raw: spread}, `{"a":[1.0,2]}`},
		{update(protocol.UnknownAssistantEvent{Type: "t", Raw: spread}), `{"type":"message_update","event":{"a":[1.0,2]}}`},
		{
			update(protocol.ToolcallInput{ToolID: "1", Input: spread}),
			`{"type":"message_update","event":{"type":"toolcall_input","tool_id":"1","input":{"a":[1.0,2]}}}`,
		},
	}
	for _, tt := range tests {
		got, err := protocol.AppendEvent(nil, tt.event)
		if err != nil || string(got) != tt.want {
			t.Errorf("got %s, %v\nwant %s", got, err, tt.want)
		}
	}
}

func TestDecodedValuesDoNotAliasTheLine(t *testing.T) {
	for name, event := range goldenEvents {
		line, err := protocol.AppendEvent(nil, event)
		if err != nil {
			t.Fatal(err)
		}
		got, err := protocol.Frame{Raw: line}.Decode()
		if err != nil {
			t.Fatal(err)
		}
		clear(line)
		if diff := cmp.Diff(event, got); diff != "" {
			t.Errorf("%s changed with its line (-want +got):\n%s", name, diff)
		}
	}
}

func TestAttachmentCheck(t *testing.T) {
	tests := []struct {
		path string
		ok   bool
	}{
		{"/a/b.txt", true},
		{"/a/..b", true},
		{"/", true},
		{"", false},
		{"a", false},
		{"./a", false},
		{"/a/../b", false},
		{"/..", false},
	}
	for _, tt := range tests {
		if err := (protocol.Attachment{Path: tt.path}).Check(); (err == nil) != tt.ok {
			t.Errorf("%q: got %v", tt.path, err)
		}
	}
}

func TestAttachedNames(t *testing.T) {
	for _, name := range []string{"x]\n[end of x]", "a\x1b[31m", "\xff", strings.Repeat("x", 256)} {
		for what, a := range map[string]protocol.Attachment{
			"path": {Path: "/a", Name: &name}, "text": {Text: new(""), Name: &name}, "mime": {Path: "/a", Mime: &name},
		} {
			if a.Check() == nil {
				t.Errorf("%s: %q is taken", what, name)
			}
		}
	}
}

func TestTurnUsageAdd(t *testing.T) {
	sum := protocol.TurnUsage{InputTokens: 1, CacheCreation5m: new(uint64(1)), Model: new("a")}
	sum.Add(protocol.TurnUsage{
		InputTokens: 2, OutputTokens: 3, CacheReadInputTokens: 4, CacheCreationInputTokens: 5,
		CacheCreation5m: new(uint64(2)), CacheCreation1h: new(uint64(6)), Model: new("b"), Estimated: true,
	})
	want := protocol.TurnUsage{
		InputTokens: 3, OutputTokens: 3, CacheReadInputTokens: 4, CacheCreationInputTokens: 5,
		CacheCreation5m: new(uint64(3)), CacheCreation1h: new(uint64(6)), Model: new("b"), Estimated: true,
	}
	sum.Add(protocol.TurnUsage{}) // which was counted
	if diff := cmp.Diff(want, sum); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestUsageStaysAtTheLargestNumber(t *testing.T) {
	most := uint64(math.MaxUint64)
	u := protocol.TurnUsage{InputTokens: most, CacheCreation5m: &most}
	u.Add(protocol.TurnUsage{InputTokens: 2, OutputTokens: 3, CacheCreation5m: &most})
	if u.InputTokens != most || u.OutputTokens != 3 || *u.CacheCreation5m != most {
		t.Errorf("got %+v", u)
	}
}
