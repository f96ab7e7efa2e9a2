package child

import (
	"context"
	"fmt"
	"slices"
	"time"

	"nexus.internal/child/foreign"
	"nexus.internal/child/turn"
	"nexus.internal/protocol"
)

// This file is what is different about an agent of another make: its turns, and the commands that
// it does not take.

// takeForeignTurn has the program of another make run a turn.
func (w *worker) takeForeignTurn(ctx context.Context, in turn.Input) turn.Result {
	in.At = time.Now().UTC()
	w.ToolEnv.Changes().BeginTurn(in.At)
	result := w.Foreign.Run(ctx, foreign.Turn{Input: in, Conversation: w.conversation, Journal: w.Journal, Listener: w})
	model := w.current().model
	if name := w.Foreign.Model(); name != "" {
		model.Model = name
		w.setModel(model)
	}
	w.addUsage(model.name(), result.Usage)
	if result.Usage.Model == nil {
		result.Usage.Model = &model.Model
	}
	return result
}

// foreignCommands are those that agents of all makes take.
var foreignCommands = []protocol.Command{
	protocol.Prompt{},
	protocol.FollowUp{},
	protocol.Abort{},
	protocol.NewSession{},
	protocol.GetMessages{},
	protocol.GetSessionStats{},
	protocol.GetState{},
	protocol.Ping{},
	protocol.SetToolOutput{},
	protocol.SetPermissions{},
	protocol.RevokeAllowances{},
	protocol.PermissionResponse{},
	protocol.HostResult{},
	protocol.Shutdown{},
}

// commands are the names of the commands that the agent of another make takes.
func (s *session) commands() (names []string) {
	for _, c := range foreignCommands {
		names = append(names, c.Name())
	}
	if s.Foreign.Setter() != nil {
		names = append(names, protocol.SetModel{}.Name(), protocol.GetAvailableModels{}.Name())
	}
	return names
}

// unsupportedError says that an agent of another make does not offer a command.
type unsupportedError struct{ command, kind string }

func (e *unsupportedError) Error() string {
	return fmt.Sprintf("%s: an agent of kind %s does not offer this: its program keeps to itself what it would change or tell", e.command, e.kind)
}

// unsupported reports why a command is not for this agent; nil if it is.
func (s *session) unsupported(c protocol.Command) error {
	if s.Foreign == nil || slices.Contains(s.commands(), c.Name()) {
		return nil
	}
	return &unsupportedError{c.Name(), s.Foreign.Kind()}
}

// changeModel answers set_model: at once, but where a program of another make has to agree.
func (s *server) changeModel(c protocol.SetModel) {
	if s.Foreign == nil {
		answer, err := s.setModel(context.Background(), c)
		s.out.post(response(c, answer, err))
		return
	}
	err := s.background.startCommand(modelLists, func(ctx context.Context) protocol.Response {
		answer, err := s.setModel(ctx, c)
		return response(c, answer, err)
	})
	if err != nil {
		s.out.post(failure(c, err))
	}
}
