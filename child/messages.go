package child

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"nexus.internal/protocol"
	"nexus.internal/protocol/frame"
	"nexus.internal/protocol/safefile"
	"nexus.internal/protocol/textcut"
	"nexus.internal/protocol/transcript"
)

// pageSize bounds the messages of one response, in bytes as written. The rest
// of the frame is for its head, whose id is bounded by protocol.MaxID.
const pageSize = frame.MaxWritten - 64<<10

// messages answers at once what is in memory, and later what has to be read from the session.
func (s *server) messages(c protocol.GetMessages) {
	if !c.IncludeCompacted {
		s.out.post(protocol.SuccessResponse(c, s.getMessages(c)))
		return
	}
	err := s.background.startCommand(historyReads, func(ctx context.Context) protocol.Response {
		answer, err := s.readMessages(ctx, c)
		return response(c, answer, err)
	})
	if err != nil {
		s.out.post(failure(c, err))
	}
}

// getMessages answers with as many messages as were asked for and fit a frame.
func (s *server) getMessages(c protocol.GetMessages) protocol.MessagesPage {
	all := s.session.conversation.Messages()
	page, err := s.out.page(c, len(all), func(n int) (protocol.Message, error) { return all[n], nil })
	if err != nil {
		panic("child: " + err.Error()) // no message is read
	}
	return page
}

// readMessages is getMessages of all that was said since the conversation began.
func (s *server) readMessages(ctx context.Context, c protocol.GetMessages) (page protocol.MessagesPage, err error) {
	path := s.Journal.Path()
	if path == "" {
		return page, errors.New("get_messages: there is no session on disk, which has what gave way to a summary")
	}
	f, err := safefile.Open(path, os.O_RDONLY)
	if err != nil {
		return page, fmt.Errorf("get_messages: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return page, fmt.Errorf("get_messages: %w", err)
	}
	history, err := transcript.ReadHistory(f, info.Size())
	if err != nil {
		return page, fmt.Errorf("get_messages: %w", err)
	}
	return s.out.page(c, history.Len(), func(n int) (m protocol.Message, err error) {
		if ctx.Err() != nil {
			return m, context.Cause(ctx)
		}
		return history.Message(n)
	})
}

// page is what was asked for of so many messages, as far as it fits a frame.
func (w *emitter) page(c protocol.GetMessages, count int, read func(n int) (protocol.Message, error)) (protocol.MessagesPage, error) {
	total := uint64(count)
	offset := min(protocol.Value(c.Offset), total)
	end := offset + min(protocol.ValueOr(c.Limit, total), total-offset)
	page := jsontext.Value{'['}
	size := 0
	for n := offset; n < end; n++ {
		m, err := read(int(n))
		if err != nil {
			return protocol.MessagesPage{}, err
		}
		value, length := w.encodeMessage(m)
		if size += length + 1; size > pageSize {
			break
		}
		if n > offset {
			page = append(page, ',')
		}
		page = append(page, value...)
	}
	return protocol.MessagesPage{Messages: append(page, ']'), Total: total, Offset: offset}, nil
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
