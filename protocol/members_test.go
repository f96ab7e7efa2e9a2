package protocol_test

import (
	"reflect"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"nexus.internal/protocol"
)

// What is written by hand is what the general encoder writes: with each field alone, with all,
// with none, and with strings that are not UTF-8. A new field that is written by nobody would
// be lost without a word.
func TestMembersWriteEveryField(t *testing.T) {
	check := func(value any, got []byte, err error) {
		t.Helper()
		want, wantErr := json.Marshal(value)
		if (err == nil) != (wantErr == nil) {
			t.Fatalf("%#v: error %v, of the general encoder %v", value, err, wantErr)
		}
		if diff := cmp.Diff(string(want), string(got)); err == nil && diff != "" {
			t.Errorf("(-general +by hand):\n%s", diff)
		}
	}
	for _, v := range variants(reflect.TypeFor[protocol.Message]()) {
		m := protocol.NewMembers(nil)
		m.Message("message", v.(protocol.Message))
		got, err := m.Close()
		check(struct {
			Message protocol.Message `json:"message"`
		}{v.(protocol.Message)}, got, err)
	}
	for _, v := range variants(reflect.TypeFor[protocol.Prompt]()) {
		got, err := protocol.AppendCommand([]byte(`{`), v.(protocol.Prompt))
		if err == nil {
			got = append([]byte("{"), got[len(`{{"type":"prompt",`):]...)
		}
		check(v, got, err)
	}
	for _, zero := range []protocol.Event{protocol.AgentEnd{}, protocol.SessionUpdate{}, protocol.TurnStart{}, protocol.TurnEnd{}} {
		for _, v := range variants(reflect.TypeOf(zero)) {
			event := v.(protocol.Event)
			got, err := protocol.AppendEvent([]byte("before"), event)
			if err != nil {
				check(event, nil, err)
				continue
			}
			head := `before{"type":"` + event.Name() + `",`
			check(event, append([]byte("{"), got[len(head):]...), nil)
		}
	}
}

// variants are values of a struct: with nothing in it, with one field each, and with all.
func variants(of reflect.Type) (all []any) {
	whole := reflect.New(of).Elem()
	all = append(all, whole.Interface())
	for i := range of.NumField() {
		for _, v := range values(of.Field(i).Type) {
			one := reflect.New(of).Elem()
			one.Field(i).Set(v)
			whole.Field(i).Set(v)
			all = append(all, one.Interface())
		}
	}
	return append(all, whole.Interface())
}

// values are some that a field may have; of text, the last is sound.
func values(of reflect.Type) (all []reflect.Value) {
	add := func(values ...any) {
		for _, v := range values {
			all = append(all, reflect.ValueOf(v).Convert(of))
		}
	}
	switch of {
	case reflect.TypeFor[time.Time]():
		add(time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC), time.Unix(1, 0).In(time.FixedZone("", 3600)), time.Unix(1, 20), time.Unix(1, 20).UTC())
		return all
	case reflect.TypeFor[jsontext.Value]():
		add(`{"a":1}`)
		return all
	}
	switch of.Kind() {
	case reflect.String:
		add("\xff", "<a>&\u2028\u00e9\"\\\n\x01\x7f")
	case reflect.Bool:
		add(true)
	case reflect.Uint64, reflect.Int64, reflect.Int:
		add(1<<63 - 1)
	case reflect.Float64:
		add(0.1, 3e-7, 1e21)
	case reflect.Pointer:
		for _, v := range values(of.Elem()) {
			p := reflect.New(of.Elem())
			p.Elem().Set(v)
			all = append(all, p)
		}
	case reflect.Slice:
		for _, v := range values(of.Elem()) {
			all = append(all, reflect.Append(reflect.Zero(of), v))
		}
	case reflect.Struct:
		for _, v := range variants(of) {
			all = append(all, reflect.ValueOf(v))
		}
	default:
		panic("no values of " + of.String())
	}
	return all
}

// The quick reading of a prompt takes what parents write, and leaves every other line to the
// careful one.
func TestPlainPrompt(t *testing.T) {
	for _, tt := range []struct {
		line string
		want bool
	}{
		{`{"type":"prompt","id":"1","message":"two\nlines \u00e9 é","attachments":[]}`, true},
		{`{"message":"","id":"1","type":"prompt","source":"a","source_agent_id":"b","traceparent":"c"}`, true},
		{`{"type":"prompt","id":"1","message":"a","attachments":[{"path":"a"}]}`, false},
		{`{"type":"prompt","id":"1","message":"a","attachments":[],"attachments":[]}`, false},
		{`{"type":"prompt","id":"1","message":"a","message":"a"}`, false},
		{`{"type":"prompt","id":"1","message":"a","more":"b"}`, false},
		{`{"type":"prompt","id":"1","Message":"a"}`, false},
		{`{"type":"prompt","id":"1"}`, false},
		{`{"type":"prompt","id":1,"message":"a"}`, false},
		{`{"type":"prompt","id":"1","message":null}`, false},
		{`{"type":"follow_up","id":"1","message":"a"}`, false},
		{`{"type": "prompt","id":"1","message":"a"}`, false},
		{`{"type":"prompt","id":"1","message":"a"},`, false},
		{`{"type":"prompt","id":"1","message":"a",}`, false},
		{`{"type":"prompt","id":"1","message":"a"}}`, false},
		{`{"type":"prompt","id":"1","message":"a"`, false},
		{"{\"type\":\"prompt\",\"id\":\"1\",\"message\":\"a\tb\"}", false},
		{"{\"type\":\"prompt\",\"id\":\"1\",\"message\":\"\xff\"}", false},
		{`{"type":"prompt","id":"1","message":"\ud800"}`, false},
		{`{}`, false},
		{`{`, false},
		{``, false},
	} {
		if _, ok := protocol.PlainPrompt([]byte(tt.line)); ok != tt.want {
			t.Errorf("%s: read %v, want %v", tt.line, ok, tt.want)
		}
		sameAsCareful(t, []byte(tt.line))
	}
}

// sameAsCareful fails if the quick reading of a prompt differs from the careful one.
func sameAsCareful(t *testing.T, line []byte) {
	t.Helper()
	quick, ok := protocol.PlainPrompt(line)
	if !ok {
		return
	}
	careful, err := protocol.DecodeAnyCommand(line)
	if err != nil {
		t.Fatalf("%s: the careful reading says %v", line, err)
	}
	if diff := cmp.Diff(careful, protocol.Command(quick)); diff != "" {
		t.Fatalf("%s: (-careful +quick):\n%s", line, diff)
	}
}
