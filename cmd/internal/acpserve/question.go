package acpserve

import (
	"context"
	"fmt"
	"slices"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/client"
	"nexus.internal/cmd/internal/cli"
	"nexus.internal/protocol"
	"nexus.internal/protocol/strict"
)

// question is a call that waits for an approval.
type question struct {
	s       *server
	c       *client.Client
	turn    *turn
	session string // the editor's
	agent   string // who asks: that of the session, or one that it created
	request protocol.PermissionRequest
	call    callUpdate
	diffs   []callContent
}

// maxName bounds what the name of a choice says of a yes for the session, in bytes: editors show it on a
// button. The content of the question has it whatever its length.
const maxName = 200

// choices are the decisions that can be given, in the words of the protocol.
var choices = []struct {
	decision   protocol.Decision
	name, kind string
}{
	{protocol.AllowOnce, "Allow", "allow_once"},
	{protocol.AllowSession, "Allow for this session", "allow_always"},
	{protocol.Deny, "Deny", "reject_once"},
}

// put asks the editor and answers the agent. The end of ctx withdraws the question: it was answered
// elsewhere, or nobody waits for it.
func (q *question) put(ctx context.Context) {
	if q.agent != q.session && !cli.IsBelow(ctx, q.c, q.agent, q.session) {
		return
	}
	asked := permissionParams{SessionID: q.session, ToolCall: q.call}
	for _, one := range choices {
		if slices.Contains(q.request.Decisions, one.decision) {
			name := one.name
			if more := cli.Harmless(q.request.ForSession, true); one.decision == protocol.AllowSession && more != "" && len(more) <= maxName {
				name += ": " + more
			}
			asked.Options = append(asked.Options, permission{string(one.decision), name, one.kind})
		}
	}
	decision, reason := q.decided(ctx, asked)
	select {
	case <-ctx.Done():
		return
	case <-q.turn.cancelled: // the cancelled turn takes the call with it
		return
	default:
	}
	p := api.RespondPermissionParams{RequestID: q.request.RequestID, Decision: decision}
	if reason != "" {
		p.Reason = &reason
	}
	if q.agent == q.session && decision != protocol.Deny { // before its result can come
		q.s.peer.update(q.session, callUpdate{Kind: "tool_call_update", ToolCallID: q.request.ToolID, Status: "in_progress", Content: q.diffs})
	}
	_, _ = client.Do(ctx, q.c, q.agent, api.RespondPermission, p) // if it was answered elsewhere, or its turn has ended, the call's result says so
}

// decided is what the editor says; what is no decision denies.
func (q *question) decided(ctx context.Context, asked permissionParams) (decision protocol.Decision, reason string) {
	raw, err := q.s.peer.ask(ctx, "session/request_permission", asked)
	var answer permissionResult
	if err == nil {
		err = strict.Fill(raw, &answer, strict.IgnoreUnknown)
	}
	switch {
	case err != nil:
		return protocol.Deny, fmt.Sprintf("the editor could not be asked: %v", err)
	case answer.Outcome.Outcome != "selected":
		return protocol.Deny, "the user closed the question without an answer"
	case !slices.ContainsFunc(asked.Options, func(o permission) bool { return o.OptionID == answer.Outcome.OptionID }):
		return protocol.Deny, fmt.Sprintf("the editor answered with %.64q, which was not offered", answer.Outcome.OptionID)
	}
	return protocol.Decision(answer.Outcome.OptionID), ""
}
