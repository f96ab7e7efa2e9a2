package acp

import (
	"context"
	"errors"
	"path"
	"slices"
	"strings"

	"github.com/tidwall/gjson"

	"nexus.internal/child/foreign"
	"nexus.internal/child/foreign/rpcpeer"
	"nexus.internal/protocol"
	"nexus.internal/protocol/shellword"
	"nexus.internal/protocol/textcut"
)

// errBetween refuses what a program asks for while no turn runs.
var errBetween = errors.New("no turn runs: nothing is read, written or allowed between turns")

// Answer implements [rpcpeer.Handler].
func (s *session) Answer(ctx context.Context, m rpcpeer.Message) (any, error) {
	t := s.running()
	switch m.Method {
	case "session/request_permission":
		if t == nil {
			return decided(nil), nil
		}
		ctx, cancel := t.bound(ctx)
		defer cancel()
		return decided(s.permit(ctx, t, m.Params)), nil
	case "fs/read_text_file", "fs/write_text_file":
		if t == nil {
			return nil, errBetween
		}
		ctx, cancel := t.bound(ctx)
		defer cancel()
		file := m.Params.Get("path").Str
		if file == "" {
			return nil, &rpcpeer.Error{Code: rpcpeer.CodeInvalidParams, Message: "path is missing"}
		}
		if m.Method == "fs/write_text_file" {
			return struct{}{}, s.client.WriteFile(ctx, t.id, file, m.Params.Get("content").Str)
		}
		text, err := s.client.ReadFile(ctx, t.id, file)
		return readResult{section(text, m.Params.Get("line"), m.Params.Get("limit"))}, err
	default:
		return nil, rpcpeer.NotFound(m.Method)
	}
}

type readResult struct {
	Content string `json:"content"`
}

// section is a part of a text: at most limit lines from line on, the first of which is 1.
func section(text string, line, limit gjson.Result) string {
	if !line.Exists() && !limit.Exists() {
		return text
	}
	all := strings.SplitAfter(text, "\n")
	from := min(max(line.Int(), 1)-1, int64(len(all)))
	all = all[from:]
	if limit.Type == gjson.Number {
		all = all[:min(max(limit.Int(), 0), int64(len(all)))]
	}
	return strings.Join(all, "")
}

// bound is ctx, which also ends when the turn is cancelled.
func (t *turn) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(t.ctx, cancel)
	return ctx, func() { stop(); cancel() }
}

// outcome is the answer to a question.
type outcome struct {
	Outcome struct {
		Outcome string `json:"outcome"`
		Option  string `json:"optionId,omitempty"`
	} `json:"outcome"`
}

// decided is the answer with an option; nil cancels what was asked about.
func decided(o *protocol.PermissionOption) (answer outcome) {
	answer.Outcome.Outcome = "cancelled"
	if o != nil {
		answer.Outcome.Outcome, answer.Outcome.Option = "selected", o.ID
	}
	return answer
}

// decisions are the kinds of options.
var decisions = map[string]protocol.Decision{
	"allow_once":    protocol.AllowOnce,
	"allow_always":  protocol.AllowSession,
	"reject_once":   protocol.Deny,
	"reject_always": protocol.Deny,
}

// maxOptions bounds how many options of a question are looked at, and maxOption the id and the name of one, in
// bytes: a person reads them.
const (
	maxOptions = 64
	maxOption  = 1 << 10
)

// options are those of a question that can be chosen: the ones that the program remembers come last.
func options(params gjson.Result) (once []protocol.PermissionOption) {
	var lasting []protocol.PermissionOption
	for i, o := range params.Get("options").Array() {
		id, kind := o.Get("optionId").Str, o.Get("kind").Str
		decision, known := decisions[kind]
		switch {
		case i == maxOptions:
			return append(once, lasting...)
		case !known || id == "" || len(id) > maxOption:
			continue
		}
		option := protocol.PermissionOption{ID: id, Name: textcut.Head(o.Get("name").Str, maxOption), Kind: decision}
		if strings.HasSuffix(kind, "_always") {
			lasting = append(lasting, option)
		} else {
			once = append(once, option)
		}
	}
	return append(once, lasting...)
}

// permit has somebody decide on a call; nil is a no for which there is no option. A no is for this once, unless
// somebody named an option.
func (s *session) permit(ctx context.Context, t *turn, params gjson.Result) *protocol.PermissionOption {
	return t.question(params.Get("toolCall"), options(params)).Decide(ctx, s.client, s.log)
}

// question is what is known of a call that the program asks about.
func (t *turn) question(u gjson.Result, options []protocol.PermissionOption) foreign.Question {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.calls[u.Get("toolCallId").Str]
	if c == nil { // it is not followed
		c = &call{id: u.Get("toolCallId").Str}
		c.update(u)
	}
	q := foreign.Question{
		TurnID: t.id, Call: foreign.Call{ID: c.id, Name: c.name(), Input: c.asked()},
		Action: protocol.ActionExternal, Summary: textcut.Clip(c.title, foreign.MaxSummary), Command: c.command(), Paths: slices.Clone(c.paths),
		Options: options,
	}
	n := foreign.NamesOf(nil, c.paths, c.input, c.bare)
	if n.Edit == q.Command { // it is none
		q.Command = ""
	}
	q.Runs = n.Command || c.kind == "execute"
	// What the program does not say enough of stays a tool of somebody else's.
	switch c.kind {
	case "read", "search", "edit", "delete", "move":
		switch {
		case n.Command && q.Command != "": // whatever else the program calls it
			q.Action = protocol.ActionExecute
		case c.kind == "read" && !n.Known:
			q.Fetch(n)
		default:
			q.OfFiles(n, c.kind != "read" && c.kind != "search")
		}
	case "execute":
		if q.Command != "" {
			q.Action = protocol.ActionExecute
		}
	case "fetch":
		q.Fetch(n)
	}
	return q
}

// command is what a call runs, if its input says so: a line for a shell, or arguments.
func (c *call) command() string {
	command := c.input.Get("command")
	if command.Type == gjson.String {
		return command.Str
	}
	all := command.Array()
	if len(all) == 3 && isShell(all[0].Str) && (all[1].Str == "-c" || all[1].Str == "-lc") && all[2].Type == gjson.String {
		return all[2].Str
	}
	var words []string
	for _, w := range all {
		words = append(words, w.String())
	}
	return shellword.Join(words...)
}

// isShell reports whether a program is a shell that runs the text behind -c: any other may do anything with it.
func isShell(program string) bool {
	dir, name := path.Split(program)
	return slices.Contains([]string{"", "/bin/", "/usr/bin/"}, dir) && slices.Contains([]string{"sh", "bash", "dash", "ksh", "zsh"}, name)
}
