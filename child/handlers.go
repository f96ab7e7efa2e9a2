package child

import (
	"context"
	"fmt"
	"slices"
	"time"

	"nexus.internal/child/journal"
	"nexus.internal/protocol"
	"nexus.internal/protocol/notes"
	"nexus.internal/protocol/transcript"
)

// handlers says what the reader does on each command but shutdown, by the command's name.
// A handler runs on the reader's goroutine, and waits neither for a turn, nor for the
// network, nor for the reader of stdout.
var handlers = handlerTable(
	handle((*server).prompt),
	handle((*server).followUp),
	handle((*server).compact),
	handle((*server).abort),
	report((*server).ping),
	answer((*server).newSession),
	answer((*server).undo),
	handle((*server).changeModel),
	answer((*server).setSettings),
	report((*server).setToolOutput),
	handle((*server).messages),
	answerLater(modelLists, (*server).listModels),
	report((*server).getStats),
	report((*server).getState),
	report((*server).listTools),
	answer((*server).setCwd),
	answer((*server).setPermissions),
	answer((*server).revokeAllowances),
	answer((*server).setSystemPrompt),
	answer((*server).updateContext),
	report((*server).getNotes),
	report((*server).listJobs),
	answerLater(serverCommands, (*server).connectServer),
	answerLater(serverCommands, (*server).disconnectServer),
	handle(func(s *server, c protocol.PermissionResponse) { s.relay.answer(c) }),
	handle(func(s *server, c protocol.HostResult) { s.relay.answer(c) }),
)

// commandHandler is the handler of one type of command.
type commandHandler struct {
	command string // its name
	handle  func(s *server, c protocol.Command)
}

func handlerTable(all ...commandHandler) map[string]commandHandler {
	table := map[string]commandHandler{}
	for _, h := range all {
		table[h.command] = h
	}
	return table
}

// handle is a command that writes its response itself.
func handle[C protocol.Command](do func(*server, C)) commandHandler {
	var zero C
	return commandHandler{zero.Name(), func(s *server, c protocol.Command) { do(s, c.(C)) }}
}

// report is a command that is always answered.
func report[C protocol.Answered[R], R any](do func(*server, C) R) commandHandler {
	return handle(func(s *server, c C) { s.out.post(protocol.SuccessResponse(c, do(s, c))) })
}

// answer is a command that is answered, or refused because of the error.
func answer[C protocol.Answered[R], R any](do func(*server, C) (R, error)) commandHandler {
	return handle(func(s *server, c C) {
		answer, err := do(s, c)
		s.out.post(response(c, answer, err))
	})
}

// answerLater is a command that takes its time in the background.
func answerLater[C protocol.Answered[R], R any](limit taskLimit, do func(*server, context.Context, C) (R, error)) commandHandler {
	return handle(func(s *server, c C) {
		err := s.background.startCommand(limit, func(ctx context.Context) protocol.Response {
			answer, err := do(s, ctx, c)
			return response(c, answer, err)
		})
		if err != nil {
			s.out.post(failure(c, err))
		}
	})
}

func response[R any](c protocol.Answered[R], answer R, err error) protocol.Response {
	if err != nil {
		return failure(c, err)
	}
	return protocol.SuccessResponse(c, answer)
}

func failure(c protocol.Command, err error) protocol.Response {
	return protocol.FailureResponse(c.Ident(), c.Name(), refusal(err))
}

func (s *server) abort(c protocol.Abort) { s.queue.abort(c) }

func (s *server) compact(c protocol.Compact) {
	if err := s.queue.accept(c); err != nil {
		s.out.post(failure(c, err))
	}
}

func (*server) ping(protocol.Ping) protocol.Acknowledged { return protocol.Acknowledged{} }

// undo takes the last turn out of the conversation.
func (s *server) undo(c protocol.Undo) (answer protocol.UndoAnswer, err error) {
	if active, _ := s.queue.status(); active != nil { // and if not, nothing begins before the reader reads on
		return answer, &busyError{c, active}
	}
	turnID, kept, ok := s.session.conversation.LastTurn()
	if !ok {
		answer.Reason, answer.MessageCount = "there is no turn: the conversation is empty, or a summary is all that is left of it", uint64(s.session.conversation.Len())
		return answer, nil
	}
	gone := s.session.conversation.Messages()[kept:]
	if c.Files {
		answer.Files = new(s.ToolEnv.Changes().Undo(context.Background(), gone, c.Unasked))
	}
	if err := s.session.save(transcript.Undo{Kept: uint64(kept), At: time.Now().UTC()}); err != nil {
		return answer, err
	}
	if c.Files {
		s.ToolEnv.Changes().Forget(gone[0].At)
	}
	answer.Undone, answer.TurnID, answer.Removed, answer.MessageCount = true, turnID, uint64(len(gone)), uint64(kept)
	s.session.conversation.Truncate(kept)
	s.session.sendUpdate(s.out.post)
	return answer, nil
}

func (s *server) newSession(c protocol.NewSession) (answer protocol.NewSessionAnswer, err error) {
	if active, _ := s.queue.status(); active != nil { // and if not, nothing begins before the reader reads on
		return answer, &busyError{c, active}
	}
	told, err := notes.Told(s.Home)
	if err != nil {
		return answer, err
	}
	answer.SessionID = journal.NewSessionID()
	records := []transcript.Record{transcript.Reset{SessionID: answer.SessionID, At: time.Now().UTC()}}
	if err := s.session.save(notes.AppendRecords(records, told)...); err != nil {
		return answer, err
	}
	s.session.reset(answer.SessionID, told)
	if s.Foreign != nil {
		s.Foreign.Reset(answer.SessionID)
	}
	if s.ToolEnv != nil {
		s.ToolEnv.Forget()
	}
	s.session.sendUpdate(s.out.post)
	return answer, nil
}

func (s *server) getStats(protocol.GetSessionStats) protocol.Stats { return s.session.stats() }

func (s *server) getState(protocol.GetState) protocol.State { return s.session.state(s.queue.status()) }

func (s *server) listTools(protocol.ToolsList) protocol.ToolList {
	return protocol.ToolList{Tools: s.ToolEnv.Tools().Specs()}
}

func (s *server) listJobs(protocol.ListJobs) protocol.JobList {
	return protocol.JobList{Jobs: s.ToolEnv.Jobs().States()}
}

func (s *server) listModels(ctx context.Context, _ protocol.GetAvailableModels) (protocol.AvailableModels, error) {
	return s.Models.List(ctx)
}

func (s *server) connectServer(ctx context.Context, c protocol.MCPConnect) (protocol.MCPAnswer, error) {
	err := s.Servers.Connect(ctx, c.Server, protocol.Value(c.Target))
	return s.serverAnswer(c, c.Server, err)
}

func (s *server) disconnectServer(ctx context.Context, c protocol.MCPDisconnect) (protocol.MCPAnswer, error) {
	return s.serverAnswer(c, c.Server, s.Servers.Disconnect(ctx, c.Server))
}

func (s *server) serverAnswer(c protocol.Command, name string, err error) (answer protocol.MCPAnswer, _ error) {
	if err != nil {
		return answer, fmt.Errorf("%s: %w", c.Name(), err)
	}
	all := s.Servers.Status()
	i := slices.IndexFunc(all, func(st protocol.MCPServer) bool { return st.Name == name })
	return protocol.MCPAnswer{Server: all[i]}, nil
}
