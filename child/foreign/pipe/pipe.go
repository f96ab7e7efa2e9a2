// Package pipe runs any program that reads a prompt on stdin and writes an answer, as text, on
// stdout: a script, a filter, a model's own command.
//
//	driver := pipe.Driver{}
//	session, err := driver.Open(ctx, opening)
//
// Each prompt has a process of its own, which has no memory of the one before. Exit status 0 is an
// answer, if it wrote something; else the turn failed, and what was written until then is kept. A cancel kills the
// process with all that it started. See SPEC.md §4.11.
package pipe

import (
	"context"
	"io"
	"sync"

	"nexus.internal/child/foreign"
	"nexus.internal/protocol"
	"nexus.internal/protocol/textcut"
)

// Driver implements [foreign.Driver].
type Driver struct{}

// Open implements [foreign.Driver]. Nothing is started before the first prompt.
func (Driver) Open(_ context.Context, o foreign.Opening) (foreign.Session, error) {
	return &session{launcher: o.Launcher, system: o.System}, nil
}

type session struct {
	launcher foreign.Launcher
	system   string // goes before each prompt, as no process knows of the one before

	mu     sync.Mutex       // guards all below
	now    *foreign.Program // nil between prompts
	closed bool
}

func (*session) About() foreign.About      { return foreign.About{Stateless: true} }
func (*session) Program() *foreign.Program { return nil }

// Prompt implements [foreign.Session].
func (s *session) Prompt(ctx context.Context, p foreign.Prompt, sink foreign.Sink) (foreign.Done, error) {
	program, err := s.launch()
	if err != nil {
		return foreign.Done{}, err
	}
	defer s.forget()
	defer program.Close()
	stop := context.AfterFunc(ctx, program.Kill)
	defer stop()
	text := p.Text
	if s.system != "" {
		text = foreign.Instructed(s.system, text)
	}
	var writing sync.WaitGroup
	writing.Go(func() { _ = program.WriteAll(text) }) // one that does not read all may answer even so
	wrote := pass(program, sink)
	end := program.End()
	writing.Wait()
	switch {
	case ctx.Err() != nil:
		return foreign.Done{Stop: protocol.StopAborted}, nil
	case !program.Succeeded() || !wrote:
		message := end.Error()
		if !wrote {
			message += " and wrote nothing to stdout"
		}
		if said := program.Complaint(); said != "" {
			message += ": " + said
		}
		return foreign.Done{}, &foreign.TurnError{Message: message}
	}
	return foreign.Done{Stop: protocol.StopCompleted}, nil
}

// pass passes on what the program writes, as whole characters.
func pass(program io.Reader, sink foreign.Sink) (wrote bool) {
	buffer := make([]byte, 32<<10)
	kept := 0
	for {
		n, err := program.Read(buffer[kept:])
		n += kept
		wrote = wrote || n > 0
		whole := n
		if err == nil {
			whole -= textcut.Partial(buffer[:n])
		}
		sink.Text(string(buffer[:whole]))
		kept = copy(buffer, buffer[whole:n])
		if err != nil {
			return wrote
		}
	}
}

func (s *session) launch() (*foreign.Program, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, foreign.ErrEnded
	}
	program, err := s.launcher.Launch()
	s.now = program
	return program, err
}

func (s *session) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now = nil
}

// Close implements [foreign.Session].
func (s *session) Close() {
	s.mu.Lock()
	s.closed = true
	program := s.now
	s.mu.Unlock()
	if program != nil {
		program.Kill()
		program.Close()
	}
}
