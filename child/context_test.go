package child_test

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"nexus.internal/child"
	"nexus.internal/child/journal"
	"nexus.internal/child/prompt"
	"nexus.internal/child/provider"
	"nexus.internal/protocol"
	"nexus.internal/protocol/transcript"
)

// parrot is a provider that says what its system prompt is.
type parrot struct{ puppet }

func (parrot) Stream(_ context.Context, r provider.Request) iter.Seq2[provider.Delta, error] {
	return func(yield func(provider.Delta, error) bool) {
		_ = yield(provider.Text{Text: r.System}, nil) && yield(provider.Stop{Usage: protocol.TurnUsage{InputTokens: 1}}, nil)
	}
}

// speaking is a child that says what its system prompt is, in a project with
// layers, and what its session then holds.
func speaking(t *testing.T) (o child.Options, dir string) {
	t.Helper()
	dir, home := t.TempDir(), t.TempDir()
	for path, text := range map[string]string{
		filepath.Join(home, "NEXUS.md"): "personal", filepath.Join(dir, "NEXUS.md"): "project",
		filepath.Join(dir, "sub/NEXUS.md"): "part", filepath.Join(dir, "a.go"): "package a", filepath.Join(dir, "bin"): "\x00",
		filepath.Join(dir, "bad/NEXUS.md"): "\xff", filepath.Join(dir, ".git/HEAD"): "",
	} {
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	j, state, err := journal.Open(journal.Options{Dir: t.TempDir(), Name: "s"})
	if err != nil {
		t.Fatal(err)
	}
	o = options()
	o.Start.Provider, o.Start.ContextWindow = parrot{}, 100_000
	o.ToolEnv, o.Home, o.Journal = at(dir), home, j
	o.State.Header = state.Header
	if o.Prompt, err = prompt.Load(prompt.Options{Home: home, Cwd: dir}); err != nil {
		t.Fatal(err)
	}
	return o, dir
}

// saved is what the session of o came to.
func saved(t *testing.T, o child.Options) *transcript.State {
	t.Helper()
	data, err := os.ReadFile(o.Journal.Path())
	if err != nil {
		t.Fatal(err)
	}
	state, _, err := transcript.Parse(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	return state
}

func TestSystemPrompt(t *testing.T) {
	o, dir := speaking(t)
	ask := func(id string) []string {
		return []string{
			`> {"type":"prompt","id":"` + id + `","message":"say it"}`, text, `< {"type":"agent_end"}`, `< {"type":"response","id":"` + id + `","ok":true}`,
		}
	}
	var script []string
	step := func(lines ...string) { script = append(script, lines...) }
	step(ask("1")...)
	step(`> {"type":"set_cwd","id":"c","cwd":"`+dir+`/sub"}`, `< {"id":"c","ok":true}`)
	step(ask("2")...)
	step(`> {"type":"set_system_prompt","id":"s","system_prompt":"Be a parrot."}`, `< {"id":"s","ok":true,"system_prompt_path":null}`)
	step(ask("3")...)
	step(`> {"type":"set_cwd","id":"c2","cwd":"`+dir+`"}`, `< {"id":"c2","ok":true}`,
		`> {"type":"get_state","id":"g"}`, `< {"id":"g","system_prompt":"Be a parrot.","system_prompt_path":null}`,
		`> {"type":"set_system_prompt","id":"s2","system_prompt":""}`, `< {"id":"s2","ok":true}`)
	// An empty delta is none.
	step(`> {"type":"prompt","id":"4","message":"say it"}`, `< {"type":"agent_end"}`, `< {"type":"response","id":"4","ok":true}`)
	step(`> {"type":"set_system_prompt","id":"s3","system_prompt":"`+strings.Repeat("x", prompt.MaxSize+1)+`"}`, `< {"id":"s3","ok":false}`,
		`> {"type":"get_state","id":"g2"}`, `< {"id":"g2","system_prompt":""}`,
		`> {"type":"set_system_prompt","id":"s4"}`, `< {"id":"s4","ok":true,"system_prompt_path":"`+dir+`/NEXUS.md"}`,
		// A file that cannot be read is left out.
		`> {"type":"set_cwd","id":"c3","cwd":"`+dir+`/bad"}`, `< {"id":"c3","ok":true}`,
		`> {"type":"get_state","id":"g3"}`, `< {"id":"g3","cwd":"`+dir+`/bad","system_prompt_path":"`+dir+`/NEXUS.md"}`,
		`> {"type":"set_cwd","id":"c4","cwd":"`+dir+`"}`, `< {"id":"c4","ok":true}`)
	step(ask("5")...)
	play(t, o, script)

	var said []string
	state := saved(t, o)
	for _, m := range state.Messages {
		if m.Role == protocol.RoleAssistant {
			head, _, environment := strings.Cut(m.Content, "\n\n# Environment\n\nWorking directory: "+dir)
			said = append(said, fmt.Sprint(head, " ", environment))
		}
	}
	const project = "personal\n\n# Instructions of this project (they prevail over those above)\n\nproject"
	want := []string{
		project + " true", project + "\n\n# Instructions for sub (they prevail over those above)\n\npart true",
		"Be a parrot. false", " false", project + " true",
	}
	if diff := cmp.Diff(want, said); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if state.Settings.SystemPrompt != nil || state.Settings.SystemPromptPath != nil || *state.Settings.Cwd != dir {
		t.Errorf("saved: %+v", state.Settings)
	}
}

func TestUpdateContext(t *testing.T) {
	o, dir := speaking(t)
	o.Prompt = prompt.Prompt{Text: "base", Explicit: true}
	update := func(rest, answer string) []string {
		return []string{`> {"type":"update_context","id":"u",` + rest + `}`, `< {"type":"response","id":"u","command":"update_context",` + answer + `}`}
	}
	var script []string
	for _, s := range []struct{ rest, answer string }{
		{`"action":"add","context_type":"file","data":{"path":"a.go","why":"it is new"}`, `"ok":true,"notes":1`},
		{`"action":"add","context_type":"file","data":{"path":"bin"}`, `"ok":true,"notes":2`},
		{`"action":"add","context_type":"file","data":{"path":"../secret"}`, `"ok":true,"notes":3`},
		{`"action":"add","context_type":"file","data":{"path":"b.go","content":"package b"}`, `"ok":true,"notes":4`},
		{`"action":"add","context_type":"dependency","data":{"name":"zap", "version":"1.27"}`, `"ok":true,"notes":5`},
		{`"action":"add","context_type":"state","data":{"key":"branch","value":"main"}`, `"ok":true,"notes":6`},
		{`"action":"modify","context_type":"state","data":{"key":"branch","value":"next"}`, `"ok":true,"notes":6`},
		{`"action":"remove","context_type":"dependency","data":{"name":"zap"}`, `"ok":true,"notes":5`},
		{`"action":"remove","context_type":"dependency","data":{"name":"zap"}`, `"ok":false,"error":"update_context: there is no \"dependency:zap\" to remove"`},
		{`"action":"modify","context_type":"state","data":{"key":"none"}`, `"ok":false,"error":"update_context: there is no \"state:none\" to modify"`},
		{`"action":"put","context_type":"state","data":{"key":"none"}`, `"ok":false,"error":"update_context: action \"put\" is not known, want add, modify or remove"`},
		{`"action":"add","context_type":"wish","data":{"key":"none"}`, `"ok":false,"error":"update_context: context_type \"wish\" is not known, want file, dependency or state"`},
		{`"action":"add","context_type":"state","data":[]`, `"ok":false`},
		{`"action":"add","context_type":"state","data":{"key":7}`, `"ok":false,"error":"update_context: data has no string \"key\" that says what it is about"`},
		{`"action":"add","context_type":"state","data":{"key":"` + strings.Repeat("k", 1025) + `"}`, `"ok":false`},
		{`"action":"add","context_type":"state","data":{"key":"k","v":"` + strings.Repeat("v", 64<<10) + `"}`, `"ok":false`},
	} {
		script = append(script, update(s.rest, s.answer)...)
	}
	script = append(script,
		`> {"type":"prompt","id":"1","message":"say it"}`, text, `< {"type":"agent_end"}`, `< {"type":"response","id":"1","ok":true}`,
		`> {"type":"get_state","id":"g"}`, `< {"id":"g","system_prompt":"base","notes":5,"compact_at":80,"max_messages":1000}`)
	play(t, o, script)

	state := saved(t, o)
	want := `base

# Context

The program that runs you wants you to know, as of now:

## file a.go

{"why":"it is new"}

package a

## file bin

[it cannot be shown: is not UTF-8 text]

## file ../secret

[it cannot be shown: ` + filepath.Dir(dir) + `/secret is outside the working directory ` + dir + `]

## file b.go

package b

## state branch

{"key":"branch","value":"next"}`
	if diff := cmp.Diff(want, state.Messages[len(state.Messages)-1].Content); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if len(state.Notes) != 5 {
		t.Errorf("saved: %+v", state.Notes)
	}
}

// Notes are bounded, come back with the session, and go with the conversation.
func TestNotesAreBounded(t *testing.T) {
	o, _ := speaking(t)
	o.State.Notes = []transcript.Note{{Key: "state:0", Data: []byte(`{"key":"0"}`)}}
	var script []string
	add := func(key, value, answer string) {
		script = append(script, `> {"type":"update_context","id":"u","action":"add","context_type":"state","data":{"key":"`+key+`","value":"`+value+`"}}`, `< {"id":"u",`+answer+`}`)
	}
	large := strings.Repeat("x", 63<<10)
	for i := 1; i <= 4; i++ {
		add(fmt.Sprint("large", i), large, fmt.Sprintf(`"ok":true,"notes":%d`, i+1))
	}
	add("large5", large, `"ok":false`)
	for i := 5; i < 64; i++ {
		add(fmt.Sprint(i), "v", fmt.Sprintf(`"ok":true,"notes":%d`, i+1))
	}
	add("64", "v", `"ok":false,"error":"update_context: there are 64 notes already; remove some"`)
	add("63", "w", `"ok":true,"notes":64`)
	script = append(script, `> {"type":"new_session","id":"n"}`, `< {"id":"n","ok":true}`, `> {"type":"get_state","id":"g"}`, `< {"id":"g","notes":0}`)
	play(t, o, script)
	if state := saved(t, o); len(state.Notes) != 0 {
		t.Errorf("saved: %d notes", len(state.Notes))
	}
}

// A turn makes room for itself, says so, and a model that is set meanwhile is
// that of the turns to come alone.
func TestCompactionInATurn(t *testing.T) {
	o := options()
	o.SessionUpdates, o.CompactAt = true, 50
	for range 3 {
		for _, role := range []protocol.Role{protocol.RoleUser, protocol.RoleAssistant} {
			o.State.Messages = append(o.State.Messages, protocol.Message{Role: role, Content: strings.Repeat("long words ", 25)})
		}
	}
	play(t, o, []string{
		`< {"type":"session_update","message_count":6}`,
		`> {"type":"prompt","id":"1","message":"say hello"}`,
		`< {"type":"message_update","event":{"type":"compaction_start"}}`, `< {"type":"session_update","message_count":4}`,
		`< {"type":"message_update","event":{"type":"compaction_end","compacted":true}}`, text, `< {"type":"session_update","message_count":5}`,
		`< {"type":"agent_end"}`, `< {"type":"response","id":"1","ok":true}`,
		`> {"type":"get_messages","id":"m","limit":1}`, `< {"id":"m","total":5}`,
		`> {"type":"get_state","id":"g"}`, `< {"id":"g","compact_at":50}`,
	})
	o.CompactAt, o.SessionUpdates = child.Never, false
	play(t, o, []string{
		`> {"type":"prompt","id":"1","message":"say hello"}`, text, `< {"type":"agent_end"}`, `< {"type":"response","id":"1","ok":true}`,
		`> {"type":"get_messages","id":"m","limit":1}`, `< {"id":"m","total":8}`,
		`> {"type":"get_state","id":"g"}`, `< {"id":"g","compact_at":0}`,
	})
}
