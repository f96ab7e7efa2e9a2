package child

import (
	"maps"
	"sync"
	"time"

	"go.uber.org/zap"

	"nexus.internal/child/conversation"
	"nexus.internal/child/prompt"
	"nexus.internal/child/tool/todo"
	"nexus.internal/protocol"
	"nexus.internal/protocol/transcript"
)

// session is the conversation of a child, the settings of its turns, and what they
// used. The reader changes the settings, the worker the totals, and both the
// conversation. It is safe for concurrent use.
type session struct {
	*Options
	conversation *conversation.Conversation

	mu            sync.Mutex // guards all below
	id            string
	settings      settings
	usage         usageTotals
	turns         uint64
	haltedAtLimit bool // the last turn ended at the iteration limit
	endedAt       time.Time
}

// settings are what the next turn is made of.
type settings struct {
	model  Selected
	prompt prompt.Prompt     // without its surroundings
	notes  []transcript.Note // replaced, never changed in place
	turns  protocol.TurnSettings
	said   protocol.TurnSettings // what of turns was said for this session
}

// openSession makes the session with which a child begins.
func openSession(o *Options) *session {
	state := o.State
	_, notes := todo.Split(state.Notes)
	preamble := conversation.Preamble{
		System: o.Prompt.Text, Model: o.Start.name(), ContextWindow: o.Start.ContextWindow, MaxMessages: int(*o.Settings.MaxMessages),
		Tools: o.ToolEnv.Tools().Specs(),
	}
	if o.Foreign != nil { // the program has its own, of which nothing is known
		preamble.System, preamble.Tools = "", nil
	}
	o.State.Messages = nil // they are the conversation's now
	return &session{
		Options: o, conversation: conversation.New(state.Messages, preamble),
		id: state.SessionID, settings: settings{
			model: o.Start, prompt: o.Prompt, notes: notes, turns: o.Settings, said: protocol.Value(state.Settings.Turns),
		},
		usage: usageTotals{sum: state.Usage, byModel: maps.Clone(state.ByModel)},
		turns: state.Turns, endedAt: state.LastActionAt, haltedAtLimit: string(state.LastOutcome) == string(protocol.StopMaxIterations),
	}
}

// save commits records to the session's file. The error is a *saveError.
func (s *session) save(records ...transcript.Record) error {
	if err := s.Journal.Commit(records...); err != nil {
		return &saveError{err: err}
	}
	return nil
}

// reset empties the session, which has another id from now on and begins with those notes.
// The settings stay.
func (s *session) reset(id string, notes []transcript.Note) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.id, s.usage, s.turns, s.haltedAtLimit, s.endedAt, s.settings.notes = id, usageTotals{}, 0, false, time.Time{}, notes
	s.conversation.Clear()
}

func (s *session) current() settings {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.settings
}

func (s *session) setModel(m Selected) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settings.model = m
}

func (s *session) setTurns(turns, said protocol.TurnSettings) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settings.turns, s.settings.said = turns, said
}

func (s *session) setPrompt(p prompt.Prompt) {
	for _, err := range p.LeftOut {
		s.Log.Warn("left out a file of the project", zap.Error(err))
	}
	s.mu.Lock()
	s.settings.prompt = p
	s.mu.Unlock()
	s.conversation.SetSystem(p.Text)
}

func (s *session) setNotes(notes []transcript.Note) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settings.notes = notes
}

// addUsage counts what a model used, by Selected.name.
func (s *session) addUsage(model string, usage protocol.TurnUsage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.usage.add(model, usage)
}

func (s *session) countTurn(stop protocol.StopReason, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.turns++
	s.haltedAtLimit, s.endedAt = stop == protocol.StopMaxIterations, at
}
