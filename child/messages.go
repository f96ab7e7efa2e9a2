package child

import (
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"nexus.internal/protocol"
	"nexus.internal/protocol/frame"
	"nexus.internal/protocol/textcut"
)

// pageSize bounds the messages of one response, in bytes as written. The rest
// of the frame is for its head, whose id is bounded by maxIDLength.
const pageSize = frame.MaxWritten - 64<<10

// getMessages answers with as many messages as were asked for and fit a frame.
func (s *server) getMessages(c protocol.GetMessages) protocol.MessagesPage {
	all := s.session.conversation.Messages()
	total := uint64(len(all))
	offset := min(protocol.Value(c.Offset), total)
	wanted := all[offset:]
	wanted = wanted[:min(protocol.ValueOr(c.Limit, total), uint64(len(wanted)))]
	page := jsontext.Value{'['}
	size := 0
	for i, m := range wanted {
		value, length := s.out.encodeMessage(m)
		if size += length + 1; size > pageSize {
			break
		}
		if i > 0 {
			page = append(page, ',')
		}
		page = append(page, value...)
	}
	return protocol.MessagesPage{Messages: append(page, ']'), Total: total, Offset: offset}
}

// encodeMessage writes one message, or its head where it alone would exceed a
// page, and says how long that becomes in a frame.
func (w *emitter) encodeMessage(m protocol.Message) (jsontext.Value, int) {
	if value, err := json.Marshal(m); err == nil && w.lengthOf(value) < pageSize {
		return value, w.lengthOf(value)
	}
	whole := len(m.Content) + len(m.Thinking)
	for _, call := range m.ToolCalls {
		whole += len(call.Input)
	}
	const part = pieceSize / 2 // two texts, and the calls, each at most six times that
	m.Content, m.Thinking = textcut.Head(m.Content, part), textcut.Head(m.Thinking, part/4)
	m.ToolCalls = shortCalls(m.ToolCalls)
	m.ThinkingSignature, m.Attachments, m.Changed, m.Created, m.Images = "", nil, nil, nil, m.Images[:min(len(m.Images), 64)]
	value := mustMarshal(protocol.PageMessage{Message: m, Truncated: true, Size: int64(whole), File: w.file})
	return value, w.lengthOf(value)
}

func (w *emitter) lengthOf(value jsontext.Value) int {
	if w.ascii {
		return len(escape(value))
	}
	return len(value)
}

// shortCalls keeps the names of the first calls and the sizes of their inputs.
func shortCalls(calls []protocol.ToolCall) []protocol.ToolCall {
	var short []protocol.ToolCall
	for _, call := range calls[:min(len(calls), 64)] {
		call.Name = textcut.Head(call.Name, 256)
		call.Input = mustMarshal(protocol.Truncation{Truncated: true, Size: uint64(len(call.Input))})
		short = append(short, call)
	}
	return short
}
