package claude

import (
	"cmp"
	"context"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/tidwall/gjson"
	"go.uber.org/zap"

	"nexus.internal/child/foreign"
	"nexus.internal/protocol"
	"nexus.internal/protocol/textcut"
)

// The options of a question.
const (
	optionAllow   = "allow"
	optionSession = "allow_session"
	optionDeny    = "deny"
)

type controlResponse struct {
	Type     string   `json:"type"`
	Response response `json:"response"`
}

type response struct {
	Subtype  string    `json:"subtype"`
	ID       string    `json:"request_id"`
	Response *decision `json:"response,omitempty"`
	Error    string    `json:"error,omitempty"`
}

// decision is the answer to can_use_tool.
type decision struct {
	Behavior string         `json:"behavior"`
	Input    jsontext.Value `json:"updatedInput,omitzero"`
	Rules    jsontext.Value `json:"updatedPermissions,omitzero"`
	Message  string         `json:"message,omitempty"`
}

func denied(why string) decision {
	return decision{Behavior: "deny", Message: strings.ToValidUTF8(cmp.Or(why, "it was not allowed"), "\uFFFD")}
}

func (s *session) answer(id string, d decision) {
	_ = s.peer.Send(controlResponse{"control_response", response{Subtype: "success", ID: id, Response: &d}})
}

// asked takes a request of the program. The reader calls it.
func (s *session) asked(m gjson.Result) {
	id, r, t := m.Get("request_id").Str, m.Get("request"), s.running()
	if subtype := r.Get("subtype").Str; subtype != "can_use_tool" {
		if t != nil {
			t.sink.Foreign([]byte(m.Raw))
		}
		_ = s.peer.Send(controlResponse{"control_response", response{Subtype: "error", ID: id, Error: "nexus does not offer " + textcut.Clip(subtype, 64)}})
		return
	}
	if t == nil {
		s.answer(id, denied("no turn runs: nothing is allowed between turns"))
		return
	}
	q := question(t.id, r)
	t.sink.Call(q.Call)
	ctx, cancel := context.WithCancel(t.ctx)
	s.mu.Lock()
	s.questions[id] = cancel
	s.mu.Unlock()
	if !s.peer.Go(func(ended context.Context) {
		defer s.withdrawn(id)
		stop := context.AfterFunc(ended, cancel)
		defer stop()
		s.answer(id, s.decide(ctx, q, r))
	}) {
		s.withdrawn(id)
		s.answer(id, denied("too many questions at once"))
	}
}

// withdrawn forgets a question, which nobody needs to answer any more.
func (s *session) withdrawn(id string) {
	s.mu.Lock()
	cancel := s.questions[id]
	delete(s.questions, id)
	s.mu.Unlock()
	if cancel != nil {
		cancel()
	}
}

// decide has somebody decide on a call.
func (s *session) decide(ctx context.Context, q foreign.Question, r gjson.Result) decision {
	answer, err := s.client.Permit(ctx, q)
	if ctx.Err() != nil {
		return denied("the turn was cancelled")
	}
	if err != nil {
		s.log.Warn("the program's question cannot be asked: it gets a no", zap.Error(err))
		return denied(err.Error())
	}
	chosen := q.Choose(answer)
	if chosen == nil || chosen.Kind == protocol.Deny {
		return denied(answer.Reason)
	}
	d := decision{Behavior: "allow", Input: jsontext.Value("{}")}
	if q.Input != nil {
		d.Input = q.Input
	}
	if chosen.ID == optionSession {
		d.Rules = sessionRules(r.Get("permission_suggestions"))
	}
	return d
}

// sessionRules are the rules that the program suggests, for this session alone: where it would
// write them into its settings, too.
func sessionRules(suggestions gjson.Result) jsontext.Value {
	rules := []map[string]jsontext.Value{}
	for _, r := range suggested(suggestions) {
		rule := map[string]jsontext.Value{}
		r.ForEach(func(name, value gjson.Result) bool {
			rule[name.Str] = jsontext.Value(value.Raw)
			return true
		})
		rule["destination"] = jsontext.Value(`"session"`)
		rules = append(rules, rule)
	}
	text, err := json.Marshal(rules, json.Deterministic(true))
	if err != nil {
		return nil // of a value that was decoded
	}
	return text
}

// suggested are the rules about the tool asked about, without changes of the program's whole mode.
func suggested(suggestions gjson.Result) (rules []gjson.Result) {
	for _, r := range suggestions.Array() {
		if kind := r.Get("type").Str; kind == "addRules" || kind == "addDirectories" {
			rules = append(rules, r)
		}
	}
	return rules
}

// contents are the members of the program's tools whose texts name no files.
var contents = map[string][]string{
	"Grep": {"pattern", "glob"}, "Write": {"content"}, "Edit": {"old_string", "new_string"}, "MultiEdit": {"old_string", "new_string"},
	"NotebookEdit": {"new_source"}, "WebFetch": {"prompt"},
}

// question is what the program asks with can_use_tool.
func question(turnID string, r gjson.Result) foreign.Question {
	q := foreign.Question{TurnID: turnID, Call: call(r.Get("tool_use_id"), r.Get("tool_name"), r.Get("input")), Action: protocol.ActionExternal}
	input := r.Get("input")
	n := foreign.NamesOf(contents[q.Name], nil, input)
	q.Runs = n.Command
	q.Options = []protocol.PermissionOption{{ID: optionAllow, Name: "Allow once", Kind: protocol.AllowOnce}}
	if len(suggested(r.Get("permission_suggestions"))) > 0 {
		q.Options = append(q.Options, protocol.PermissionOption{
			ID: optionSession, Name: "Allow, and what is like it for the session", Kind: protocol.AllowSession,
		})
	}
	q.Options = append(q.Options, protocol.PermissionOption{ID: optionDeny, Name: "Deny", Kind: protocol.Deny})
	// What the program does not say enough of stays a tool of somebody else's.
	switch q.Name {
	case "Bash":
		if q.Command = input.Get("command").Str; q.Command != "" {
			q.Action = protocol.ActionExecute
		}
	case "Read", "NotebookRead", "Glob", "Grep", "LS":
		q.OfFiles(n, false)
	case "Write", "Edit", "MultiEdit", "NotebookEdit":
		q.OfFiles(n, true)
	case "WebFetch":
		q.Fetch(n)
	}
	about := cmp.Or(q.Command, strings.Join(q.Paths, " "), input.Get("url").Str, r.Get("description").Str)
	q.Summary = textcut.Clip(strings.TrimSpace(q.Name+" "+about), foreign.MaxSummary)
	return q
}
