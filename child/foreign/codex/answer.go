package codex

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/tidwall/gjson"

	"nexus.internal/child/foreign"
	"nexus.internal/child/foreign/rpcpeer"
	"nexus.internal/protocol"
	"nexus.internal/protocol/textcut"
)

type decided struct {
	Decision string `json:"decision"`
}

// cancel is the answer that also ends the turn.
const cancel = "cancel"

// options are the answers to a question about a command or a change of files.
func options() []protocol.PermissionOption {
	return []protocol.PermissionOption{
		{ID: "accept", Name: "Yes", Kind: protocol.AllowOnce},
		{ID: "acceptForSession", Name: "Yes, and do not ask again for it in this session", Kind: protocol.AllowSession},
		{ID: "decline", Name: "No, go on without it", Kind: protocol.Deny},
		{ID: cancel, Name: "No, and end the turn", Kind: protocol.Deny},
	}
}

// Answer implements [rpcpeer.Handler].
func (s *session) Answer(ctx context.Context, m rpcpeer.Message) (any, error) {
	s.mu.Lock()
	t := s.turn
	s.mu.Unlock()
	switch m.Method {
	case "item/commandExecution/requestApproval", "item/fileChange/requestApproval":
		if t == nil {
			return decided{cancel}, nil
		}
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		defer context.AfterFunc(t.ctx, stop)()
		return decided{s.permit(ctx, t.question(m))}, nil
	case "item/permissions/requestApproval": // more rights than its sandbox has: none
		return struct {
			Permissions struct{} `json:"permissions"`
		}{}, nil
	case "mcpServer/elicitation/request":
		return struct {
			Action  string    `json:"action"`
			Content *struct{} `json:"content"`
		}{Action: "decline"}, nil
	default:
		return nil, rpcpeer.NotFound(m.Method)
	}
}

func (s *session) permit(ctx context.Context, q foreign.Question) string {
	if o := q.Decide(ctx, s.client, s.log); o != nil {
		return o.ID
	}
	return cancel
}

// question is what is known of what the program asks about.
func (t *turn) question(m rpcpeer.Message) foreign.Question {
	id := m.Params.Get("itemId").Str
	item := t.known(id)
	q := foreign.Question{
		TurnID: t.id, Call: foreign.Call{ID: id, Name: name(item), Input: arguments(item)}, Action: protocol.ActionExternal,
		Summary: textcut.Clip(m.Params.Get("reason").Str, foreign.MaxSummary), Options: options(),
	}
	if m.Method == "item/fileChange/requestApproval" {
		q.Name = "fileChange"
		var paths []string
		for _, c := range changes(item) {
			paths = append(paths, c.Path, c.To)
		}
		paths = append(paths, m.Params.Get("grantRoot").Str)
		q.Change(slices.DeleteFunc(paths, func(path string) bool { return path == "" }))
		return q
	}
	q.Name, q.Runs = "commandExecution", true
	q.Command = cmp.Or(m.Params.Get("command").Str, item.Get("command").Str)
	if host := m.Params.Get("networkApprovalContext.host").Str; host != "" {
		q.Input = contact(host, q.Input)
		q.Action, q.Hosts = protocol.ActionFetch, []string{strings.ToLower(host)}
		return q
	}
	if kind := m.Params.Get("kind"); q.Command != "" && (kind.Type == gjson.Null || kind.Str == "command") {
		q.Action = protocol.ActionExecute
		if cwd := cmp.Or(m.Params.Get("cwd").Str, item.Get("cwd").Str); cwd != "" {
			q.Paths = []string{cwd}
		}
	}
	return q
}
