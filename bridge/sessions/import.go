package sessions

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/uuid"

	"nexus.internal/bridge/api"
	"nexus.internal/protocol"
	"nexus.internal/protocol/rights"
	"nexus.internal/protocol/strict"
	"nexus.internal/protocol/transcript"
)

// foreign is a session as an earlier program kept it, one JSON object (SPEC
// §6.3). What it says of tokens is left out: it is counted anew.
type foreign struct {
	AgentID          string           `json:"agent_id"`
	Messages         []foreignMessage `json:"messages"`
	SystemPrompt     *string          `json:"system_prompt"`
	SystemPromptPath *string          `json:"system_prompt_path"`
	WorkingDirectory *string          `json:"working_directory"`
	PermissionLevel  *string          `json:"permission_level"`
	DisabledTools    *[]string        `json:"disabled_tools"`
	CreatedAt        *string          `json:"created_at"`
	ModifiedAt       *string          `json:"modified_at"`
	Provenance       *string          `json:"provenance"`
}

type foreignMessage struct {
	Role       protocol.Role  `json:"role"`
	Content    *string        `json:"content"`
	ToolCalls  *[]foreignCall `json:"tool_calls"`
	ToolCallID *string        `json:"tool_call_id"`
}

type foreignCall struct {
	ID        string         `json:"id"`
	Name      string         `json:"name"`
	Arguments jsontext.Value `json:"arguments"`
}

// Imported is what became of a foreign session.
type Imported struct {
	Name     string `json:"name"`
	Messages uint64 `json:"message_count"`
	// Preset is what its agent may do: what was unrestricted is trusted here,
	// and what does not say is sandboxed.
	Preset string `json:"permission_level"`
}

// Import saves a session that an earlier program kept as JSON, under the name
// that it bears. It fails with an *Error of ErrExists if there is one, is NOT_PERMITTED
// if the name is reserved (roleAgents are those of api.CheckReserved), and else says what
// is wrong with the data.
func (c *Catalogue) Import(data []byte, roleAgents ...string) (Imported, error) {
	records, imported, err := convert(data, time.Now())
	if err != nil {
		return Imported{}, err
	}
	if err := api.CheckReserved(imported.Name, roleAgents...); err != nil {
		return Imported{}, err
	}
	var text []byte
	for _, r := range records {
		if text, err = transcript.Append(text, r); err != nil {
			return Imported{}, err
		}
		text = append(text, '\n')
	}
	release, err := c.exclusive()
	if err != nil {
		return Imported{}, err
	}
	defer release()
	err = c.begin(imported.Name, bytesOf(text), func() error { return nil })
	return imported, err
}

// convert makes records of a foreign session.
func convert(data []byte, now time.Time) ([]transcript.Record, Imported, error) {
	var f foreign
	if err := strict.Unmarshal(data, &f, strict.IgnoreUnknown); err != nil {
		return nil, Imported{}, err
	}
	if !api.ValidAgentID(f.AgentID) || api.IsTemp(f.AgentID) {
		return nil, Imported{}, wrong("agent_id", "%q is no name of a saved session", f.AgentID)
	}
	created, err := foreignTime("created_at", f.CreatedAt, now)
	if err != nil {
		return nil, Imported{}, err
	}
	modified, err := foreignTime("modified_at", f.ModifiedAt, created)
	if err != nil {
		return nil, Imported{}, err
	}
	settings, err := f.settings(modified)
	if err != nil {
		return nil, Imported{}, err
	}
	records := []transcript.Record{
		transcript.Header{Version: transcript.Version, SessionID: uuid.NewString(), Name: f.AgentID, CreatedAt: created}, settings,
	}
	var state conversion
	for i, m := range f.Messages {
		if err := state.add(m, fmt.Sprintf("messages[%d]", i), modified); err != nil {
			return nil, Imported{}, err
		}
	}
	state.end(modified)
	return append(records, state.records...), Imported{
		Name: f.AgentID, Messages: state.messages, Preset: settings.Permissions.Preset,
	}, nil
}

func wrong(path, format string, args ...any) error {
	return &strict.Error{Path: path, Problem: fmt.Sprintf(format, args...)}
}

// foreignTime reads a time of RFC 3339, or one without a zone, which is UTC.
func foreignTime(path string, text *string, otherwise time.Time) (time.Time, error) {
	if text == nil {
		return otherwise.UTC(), nil
	}
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05.999999999"} {
		if at, err := time.Parse(layout, *text); err == nil && at.Year() >= 0 && at.Year() < 10_000 {
			return at.UTC(), nil
		}
	}
	return time.Time{}, wrong(path, "is no time: %q", *text)
}

func (f foreign) settings(at time.Time) (transcript.Settings, error) {
	out := transcript.Settings{At: at, SystemPrompt: f.SystemPrompt}
	if f.SystemPrompt != nil {
		out.SystemPromptPath = f.SystemPromptPath
	}
	preset := rights.Sandboxed
	switch level := protocol.Value(f.PermissionLevel); level {
	case "", rights.Sandboxed:
	case rights.Trusted, rights.Yolo:
		preset = rights.Trusted
	default:
		return out, wrong("permission_level", "%q is none of yolo, trusted, sandboxed", level)
	}
	out.Permissions = &protocol.Permissions{Preset: preset, DisabledTools: protocol.Value(f.DisabledTools)}
	if dir := f.WorkingDirectory; dir != nil {
		if !filepath.IsAbs(*dir) || strings.Contains(*dir, "\x00") {
			return out, wrong("working_directory", "%q is no absolute path", *dir)
		}
		if real, err := filepath.EvalSymlinks(*dir); err == nil {
			dir = &real // as a child saves it
		}
		out.Cwd = dir
	}
	if by := protocol.Value(f.Provenance); by != "" && by != api.ProvenanceUser {
		if !api.ValidAgentID(by) {
			return out, wrong("provenance", "%q is neither user nor an agent", by)
		}
		out.ParentAgentID, out.Depth = &by, new(uint64(1))
	}
	return out, nil
}

// conversion makes turns of messages: one begins with each of a user.
type conversion struct {
	records  []transcript.Record
	messages uint64
	turn     int
	open     bool
	calls    []protocol.ToolCall // without a result yet
}

func (c *conversion) add(m foreignMessage, path string, at time.Time) error {
	out := protocol.Message{Role: m.Role, Content: protocol.Value(m.Content), At: at}
	switch m.Role {
	case protocol.RoleUser:
		c.end(at)
		c.turn++
		c.open = true
	case protocol.RoleAssistant:
		c.answer(at)
		for i, call := range protocol.Value(m.ToolCalls) {
			if call.ID == "" || call.Name == "" {
				return wrong(fmt.Sprintf("%s.tool_calls[%d]", path, i), "has no id or no name")
			}
			out.ToolCalls = append(out.ToolCalls, protocol.ToolCall{ID: call.ID, Name: call.Name, Input: call.Arguments})
		}
		c.calls = out.ToolCalls
	case protocol.RoleTool:
		id := protocol.Value(m.ToolCallID)
		i := slices.IndexFunc(c.calls, func(call protocol.ToolCall) bool { return call.ID == id })
		if i < 0 {
			return wrong(path+".tool_call_id", "%q is of no call before it that waits for a result", id)
		}
		out.ToolCallID, out.ToolName = id, c.calls[i].Name
		c.calls = slices.Delete(slices.Clone(c.calls), i, i+1)
	case protocol.RoleSystem:
	default:
		return wrong(path+".role", "%q is none of user, assistant, tool, system", m.Role)
	}
	c.say(out)
	return nil
}

func (c *conversion) say(m protocol.Message) {
	if c.open {
		m.TurnID = fmt.Sprint("imported-", c.turn)
	}
	c.records = append(c.records, transcript.Message{Message: m})
	c.messages++
}

// answer gives each call that has no result one that says so: no model goes on
// from a call without.
func (c *conversion) answer(at time.Time) {
	for _, call := range c.calls {
		c.say(protocol.Message{
			Role: protocol.RoleTool, ToolCallID: call.ID, ToolName: call.Name, IsError: true, At: at, Content: "the result was not saved",
		})
	}
	c.calls = nil
}

// end closes the turn that is open.
func (c *conversion) end(at time.Time) {
	c.answer(at)
	if c.open {
		c.records = append(c.records, transcript.TurnEnd{
			TurnID: fmt.Sprint("imported-", c.turn), Outcome: transcript.Outcome(protocol.StopCompleted), At: at,
		})
	}
	c.open = false
}
