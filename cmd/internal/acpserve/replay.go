package acpserve

import (
	"context"
	"strconv"
	"strings"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/client"
	"nexus.internal/protocol"
	"nexus.internal/protocol/textcut"
)

// replay tells the editor all that was said in a session, in its order.
func (s *server) replay(ctx context.Context, c *client.Client, x *session) error {
	now, err := client.Do(ctx, c, x.id, api.GetContext, api.None{})
	if err != nil {
		return err
	}
	p := past{s: s, session: x.id, dir: now.Cwd, calls: map[string]*shownCall{}}
	for offset := uint64(0); ; {
		page, err := client.Do(ctx, c, x.id, api.GetMessages, api.GetMessagesParams{Offset: &offset, IncludeCompacted: new(true)})
		if err != nil {
			return err
		}
		for i, m := range page.Messages {
			p.message(m, strconv.FormatUint(offset+uint64(i), 10))
		}
		offset += uint64(len(page.Messages))
		if len(page.Messages) == 0 || offset >= page.Total {
			break
		}
	}
	p.end()
	return s.tellUsage(ctx, c, x)
}

// past tells messages of a conversation.
type past struct {
	s       *server
	session string
	dir     string
	calls   map[string]*shownCall // those without a result, by id
	plan    []planEntry           // the last one
}

// message tells one; number is its place in the conversation.
func (p *past) message(m api.Message, number string) {
	switch m.Role {
	case protocol.RoleUser:
		text := m.Content
		for _, a := range m.Attachments {
			if name := attachmentName(a); !strings.Contains(text, name) {
				text += "\n[" + name + "]"
			}
		}
		p.text("user_message_chunk", text, number)
	case protocol.RoleAssistant:
		p.text("agent_thought_chunk", m.Thinking, number+"-thought")
		p.text("agent_message_chunk", m.Content, number)
		for _, c := range m.ToolCalls {
			p.calls[c.ID] = &shownCall{tool: c.Name, input: c.Input}
			if hidden(c.Name) {
				continue
			}
			update := described(c.ID, c.Name, c.Input, p.dir)
			p.calls[c.ID].diffs = diffsOf(c.Name, c.Input, p.dir, nil)
			update.Kind, update.Status, update.Content = "tool_call", "pending", p.calls[c.ID].diffs
			p.s.peer.update(p.session, update)
		}
	case protocol.RoleTool:
		c := p.calls[m.ToolCallID]
		delete(p.calls, m.ToolCallID)
		switch {
		case c == nil:
		case !hidden(c.tool):
			p.s.peer.update(p.session, ended(m.ToolCallID, m.Content, m.IsError, c.diffs))
		case !m.IsError && planOf(c.input) != nil:
			p.plan = planOf(c.input)
		}
	case protocol.RoleSystem: // not said by anybody
	}
}

func attachmentName(a protocol.Attachment) string {
	if name := protocol.Value(a.Name); name != "" {
		return name
	}
	return a.Path
}

func (p *past) text(kind, text, message string) {
	for text != "" {
		piece := textcut.Head(text, maxPiece)
		text = text[len(piece):]
		p.s.peer.update(p.session, chunk{kind, textBlock(piece), message})
	}
}

// end tells what was cut off, and the plan as it is.
func (p *past) end() {
	for id, c := range p.calls {
		if !hidden(c.tool) {
			p.s.peer.update(p.session, ended(id, "It did not come to an end.", true, nil))
		}
	}
	if p.plan != nil {
		p.s.peer.update(p.session, planUpdate{"plan", p.plan})
	}
}
