package child

import (
	"context"
	"errors"
	"fmt"
	"time"

	"nexus.internal/child/journal"
	"nexus.internal/child/parent"
	"nexus.internal/protocol"
	"nexus.internal/protocol/textcut"
	"nexus.internal/protocol/transcript"
)

// handle acts on one command, on the reader's goroutine.
func (s *server) handle(c protocol.Command) {
	if err := s.taken(c); err != nil {
		s.out.post(refusal(c.Ident(), err.Error()))
		return
	}
	switch c := c.(type) {
	case protocol.Prompt:
		if err := checkSender(c); err != nil {
			s.out.post(refusal(c.ID, err.Error()))
			return
		}
		s.begin(c, c.Attachments)
	case protocol.FollowUp:
		s.begin(c, nil)
	case protocol.Compact:
		if err := s.accept(c); err != nil {
			s.refuse(c, err)
		}
	case protocol.Abort:
		s.abort(c)
	case protocol.Ping:
		s.out.post(protocol.SuccessResponse(c, protocol.Acknowledged{}))
	case protocol.NewSession:
		s.newSession(c)
	case protocol.SetModel:
		s.setModel(c)
	case protocol.GetMessages:
		s.getMessages(c)
	case protocol.GetAvailableModels:
		s.listModels(c)
	case protocol.GetSessionStats:
		s.out.post(protocol.SuccessResponse(c, s.stats()))
	case protocol.GetState:
		s.out.post(protocol.SuccessResponse(c, s.state()))
	case protocol.ToolsList:
		s.out.post(protocol.SuccessResponse(c, protocol.ToolList{Tools: s.tools()}))
	case protocol.SetCwd:
		s.setCwd(c)
	case protocol.SetPermissions:
		s.setPermissions(c)
	case protocol.MCPConnect:
		s.serverCommand(c, c.Server, func(ctx context.Context) error {
			target := ""
			if c.Target != nil {
				target = *c.Target
			}
			return s.Servers.Connect(ctx, c.Server, target)
		})
	case protocol.MCPDisconnect:
		s.serverCommand(c, c.Server, func(ctx context.Context) error { return s.Servers.Disconnect(ctx, c.Server) })
	case protocol.PermissionResponse:
		s.answer(c)
	case protocol.HostResult:
		s.answer(c)
	case protocol.SetSystemPrompt:
		s.setSystemPrompt(c)
	case protocol.UpdateContext:
		s.updateContext(c)
	case protocol.Shutdown: // read acts on it
	}
}

// checkSender reports why a prompt cannot say where it comes from as it does.
func checkSender(p protocol.Prompt) error {
	for _, one := range []struct{ member, value string }{{"source", p.Source}, {"source_agent_id", p.SourceAgentID}} {
		if one.value == "" {
			continue
		}
		if err := protocol.CheckSource(one.value); err != nil {
			return fmt.Errorf("prompt: member %q: %w", one.member, err)
		}
	}
	return nil
}

// taken reports why the id of a command cannot have a response of its own: it
// belongs to something that has yet to get one. An abort may bear the id of what
// runs: its response is that one.
func (s *server) taken(c protocol.Command) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	jobs := s.queue
	switch c.(type) {
	case protocol.Prompt, protocol.FollowUp, protocol.Compact: // accept says so
		return nil
	case protocol.Abort:
	default:
		if s.active != nil {
			jobs = append([]*job{s.active}, jobs...)
		}
	}
	for _, j := range jobs {
		if c.Ident() != "" && j.command.Ident() == c.Ident() {
			return fmt.Errorf("id %q belongs to a %s in flight", textcut.Head(c.Ident(), 64), j.command.Name())
		}
	}
	return nil
}

// begin accepts a turn. One that cannot be is only an error: it gets no
// agent_end and no response.
func (s *server) begin(c protocol.Command, attachments []protocol.Attachment) {
	for _, a := range attachments {
		if err := a.Check(); err != nil {
			s.out.post(refusal(c.Ident(), err.Error()))
			return
		}
	}
	if err := s.accept(c); err != nil {
		s.out.post(refusal(c.Ident(), err.Error()))
	}
}

// refuse answers a command that is no prompt with a no.
func (s *server) refuse(c protocol.Command, err error) {
	s.out.post(protocol.FailureResponse(c.Ident(), c.Name(), refusalOf(err)))
}

func (s *server) newSession(c protocol.NewSession) {
	id := journal.NewSessionID()
	s.mu.Lock()
	busy := s.active != nil // and if not, nothing begins before the reader reads on
	s.mu.Unlock()
	if busy {
		s.refuse(c, errors.New("new_session is refused while a turn runs"))
		return
	}
	if err := s.save(transcript.Reset{SessionID: id, At: time.Now().UTC()}); err != nil {
		s.refuse(c, err)
		return
	}
	s.mu.Lock()
	s.sessionID, s.usage, s.turns, s.halted, s.lastAt = id, protocol.TurnUsage{}, 0, false, time.Time{}
	s.byModel = nil
	s.notes = nil
	s.conversation.Clear()
	s.mu.Unlock()
	if s.ToolEnv != nil {
		s.ToolEnv.Forget()
	}
	s.sendUpdate(s.out.post)
	s.out.post(protocol.SuccessResponse(c, protocol.NewSessionAnswer{SessionID: id}))
}

// answer passes on what the parent says to a question of a tool.
func (s *server) answer(c protocol.Answered[protocol.Acknowledged]) {
	s.answering.Lock()
	defer s.answering.Unlock()
	err := parent.ErrUnknown
	if s.Parent != nil {
		err = s.Parent.Answer(c)
	}
	if err != nil {
		s.refuse(c, err)
		return
	}
	s.out.post(protocol.SuccessResponse(c, protocol.Acknowledged{}))
}
