package stdio

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/tidwall/gjson"
	"go.uber.org/zap"

	"nexus.internal/protocol"
	"nexus.internal/protocol/frame"
	"nexus.internal/protocol/strict"
	"nexus.internal/protocol/textcut"
	"nexus.internal/supervisor"
	"nexus.internal/supervisor/proc"
)

const (
	// maxGarbage is how many lines of one incarnation may be no frames; one
	// more ends it (SPEC §7).
	maxGarbage = 100
	// shownGarbage is how much of such a line is logged, in bytes.
	shownGarbage = 200
	// shallow is the size up to which a line is checked by a parser that
	// recurses: its depth is bounded by the line then. In bytes.
	shallow = 64 << 10
	// maxType is the longest type of a frame, in bytes. Types become names of
	// server-sent events, so they hold no control characters either.
	maxType = 64
)

// Launcher starts processes.
type Launcher struct {
	// CommandLine knows their program. Required.
	CommandLine CommandLine
	// Log gets the children's stderr and what is wrong with their stdout; nil
	// means nobody does.
	Log *zap.Logger
	// Graces are the patience of the stop ladder; the zero value is SPEC §5.5.
	Graces proc.Graces
	// WriteTimeout is how long a child may leave its stdin unread; 0 means
	// proc.DefaultWriteTimeout.
	WriteTimeout time.Duration
	// Guard reaches what leaves the children's groups; nil means that nobody does.
	Guard *proc.Guard
	// Spares become agents that want no process of their own making; nil means that each
	// agent's process is started.
	Spares *Spares

	shares shares
}

// Launch starts a process, or takes a spare, and waits for ready. The error is
// always a *supervisor.StartError.
func (l *Launcher) Launch(ctx context.Context, s supervisor.Spec, again bool) (supervisor.Conn, error) {
	if ctx.Err() != nil {
		return nil, &supervisor.StartError{Err: context.Cause(ctx)}
	}
	command, err := l.CommandLine.Command(s, again)
	if err != nil {
		return nil, &supervisor.StartError{Err: err}
	}
	log := l.Log
	if log == nil {
		log = zap.NewNop()
	}
	log = log.With(zap.String("agent", s.ID))
	shares, release := l.shares.take(s)
	if c := l.Spares.take(command, len(shares) > 0 || LimitsNeedStart(s.Limits), log); c != nil {
		release()
		defer l.Spares.Changed() // another is started once this agent is ready
		if err := bringUp(ctx, c, s.ID); !killed(ctx, err) {
			return c.unless(err)
		}
		log.Warn("a spare was killed before it was an agent: a process is started")
		_, release = l.shares.take(s) // it has none
	}
	p, err := proc.Start(proc.Spec{
		Argv: command.argv(), Env: command.environ(), Dir: command.Dir, Log: log, Graces: l.Graces, WriteTimeout: l.WriteTimeout, Guard: l.Guard,
		Limits: proc.Limits(s.Limits), Shares: shares,
	})
	release()
	if err != nil {
		if e, ok := errors.AsType[*proc.StartError](err); ok && e.Dir != "" {
			err = &supervisor.DirError{Agent: s.ID, Dir: e.Dir, Err: err}
		}
		return nil, &supervisor.StartError{Err: err}
	}
	c := newConn(p, log)
	return c.unless(bringUp(ctx, c, s.ID))
}

// bringUp waits until the child is ready. On failure nothing of it is left.
func bringUp(ctx context.Context, c *conn, agent string) error {
	unhook := context.AfterFunc(ctx, func() { c.process.Stop(ctx, nil) })
	err := c.handshake()
	if err == nil && c.process.Look() {
		err = errors.New("child cannot start within its limits")
	}
	if !unhook() {
		err = context.Cause(ctx)
	}
	if err != nil {
		exit := c.end()
		return &supervisor.StartError{Err: cmp.Or(sessionError(agent, exit), err), Exit: &exit}
	}
	return nil
}

// sessionError is what a child's exit before ready says of its session, that of
// the agent's name; nil if that was not the cause.
func sessionError(name string, exit supervisor.Exit) error {
	switch exit.Code {
	case protocol.ExitSessionInUse:
		return &supervisor.SessionError{Name: name, InUse: true, Reason: exit.Stderr}
	case protocol.ExitSessionDamaged:
		return &supervisor.SessionError{Name: name, Reason: exit.Stderr}
	default:
		return nil
	}
}

// killed reports whether a child was not ready because somebody killed it, or told it to end.
func killed(ctx context.Context, err error) bool {
	e, ok := errors.AsType[*supervisor.StartError](err)
	return ok && e.Exit != nil && (e.Exit.Signal != "" || e.Exit.Code == 0) && ctx.Err() == nil
}

type conn struct {
	process *proc.Process
	log     *zap.Logger
	ready   protocol.Ready
	writer  *frame.Writer
	broken  atomic.Bool // a write was lost: nothing may follow it

	lines   *frame.Reader // of the goroutine that calls Recv
	garbage int           // lines that were no frames; of the same
}

func newConn(p *proc.Process, log *zap.Logger) *conn {
	return &conn{process: p, log: log, lines: frame.NewReader(p.Stdout()), writer: frame.NewWriter(p)}
}

func (c *conn) unless(err error) (supervisor.Conn, error) {
	if err != nil {
		return nil, err
	}
	return c, nil
}

// end kills the process and leaves the rest of its output unread.
func (c *conn) end() supervisor.Exit {
	c.process.Stop(supervisor.KillNow, nil)
	c.process.Discard()
	return c.Exit()
}

// handshake waits for the first frame, which must be ready. If it is not, the
// error is a *supervisor.HandshakeError.
func (c *conn) handshake() error {
	f, err := c.Recv()
	if err != nil {
		if err == io.EOF { //nolint:errorlint // Recv's own
			return errors.New("child ended before it was ready")
		}
		return err
	}
	event, err := protocol.Frame{Raw: f.Raw}.Decode() // all of it is checked
	if err != nil {
		return &supervisor.HandshakeError{Err: fmt.Errorf("child's first frame: %w", err)}
	}
	ready, ok := event.(protocol.Ready)
	if !ok {
		return &supervisor.HandshakeError{Err: fmt.Errorf("child's first frame is %q, want ready", f.Type)}
	}
	if ready.ProtocolVersion != protocol.Version {
		return &supervisor.HandshakeError{Err: &protocol.VersionError{Got: ready.ProtocolVersion}}
	}
	c.ready = ready
	return nil
}

func (c *conn) Ready() protocol.Ready { return c.ready }
func (c *conn) PID() int              { return c.process.PID() }
func (c *conn) Done() <-chan struct{} { return c.process.Done() }

func (c *conn) Usage() supervisor.Usage { return c.process.Usage() }
func (c *conn) Exit() supervisor.Exit   { return c.process.Exit() }

func (c *conn) Send(command protocol.Command) error {
	line, err := protocol.AppendCommand(nil, command)
	if err != nil {
		return &supervisor.CommandError{Command: command.Name(), Err: err}
	}
	if c.broken.Load() {
		return errors.New("child's stdin is lost")
	}
	switch command.(type) {
	case protocol.Prompt, protocol.Compact:
		c.process.ForgetStderr() // what an earlier turn complained of does not end this one
	}
	err = c.writer.Write(line)
	if _, tooLarge := errors.AsType[*frame.TooLargeError](err); tooLarge {
		return &supervisor.CommandError{Command: command.Name(), Err: err}
	}
	if err != nil {
		c.broken.Store(true)
	}
	return err
}

func (c *conn) Stop(ctx context.Context) supervisor.Exit {
	return c.process.Stop(ctx, func() {
		c.Send(protocol.Shutdown{}) //nolint:errcheck // the next rung closes stdin
	})
}

func (c *conn) Recv() (protocol.Frame, error) {
	for {
		line, err := c.lines.Next()
		if _, tooLarge := errors.AsType[*frame.TooLargeError](err); tooLarge {
			line = []byte(err.Error())
		} else if err != nil {
			return protocol.Frame{}, err
		} else if f, ok := route(line); ok {
			if f.Type == "ready" && c.ready.ProtocolVersion != 0 {
				return protocol.Frame{}, errors.New("child said ready again")
			}
			return f, nil
		}
		if c.garbage++; c.garbage > maxGarbage {
			return protocol.Frame{}, fmt.Errorf("more than %d lines on the child's stdout were no frames", maxGarbage)
		}
		shown := strings.ToValidUTF8(string(textcut.Head(line, shownGarbage)), "\uFFFD")
		c.log.Warn("no frame on the child's stdout", zap.String("line", proc.Redact(shown)), zap.Int("bytes", len(line)))
	}
}

// types are the names of the protocol's own events: a frame of one of them
// needs no copy of its name.
var types = []string{
	"message_update", "response", "agent_end", "error", "session_update", "ready",
	"subagent_start", "subagent_update", "subagent_done",
}

// route makes a frame of a line that is a JSON object with a type, in which no member
// stands twice, in one case or in two, as two readers of it could disagree about that one. A type that is not
// a child's to write makes no frame. Frames that the supervisor acts on are checked for
// members that stand twice where they are decoded: such a frame ends the child.
func route(line []byte) (protocol.Frame, bool) {
	if len(line) > shallow {
		if strict.Valid(line) != nil {
			return protocol.Frame{}, false
		}
	} else if !utf8.Valid(line) || !gjson.ValidBytes(line) {
		return protocol.Frame{}, false
	}
	if bytes.TrimLeft(line, " \t\r")[0] != '{' {
		return protocol.Frame{}, false
	}
	f, ok := typed(line)
	if ok && !plainDelta(line) && !protocol.Decoded(f.Type) && protocol.ValidEvent(line) != nil {
		return protocol.Frame{}, false
	}
	return f, ok
}

// typeName is what the type of a frame looks like: no reader takes one for another, as
// one that trims blanks or looks at no case would.
var typeName = regexp.MustCompile(`^[a-z][a-z0-9_.]*$`)

// typed finds the type of an object; false if it is none that a child may write.
func typed(line []byte) (protocol.Frame, bool) {
	for _, typ := range types {
		// What we write ourselves begins so.
		if len(line) > 9+len(typ) && string(line[:9]) == `{"type":"` && string(line[9:9+len(typ)]) == typ && line[9+len(typ)] == '"' {
			return protocol.Frame{Type: typ, Raw: line}, true
		}
	}
	typ := gjson.GetBytes(line, "type")
	if typ.Type != gjson.String || len(typ.Str) > maxType || !typeName.MatchString(typ.Str) || protocol.Reserved(typ.Str) {
		return protocol.Frame{}, false
	}
	return protocol.Frame{Type: strings.Clone(typ.Str), Raw: line}, true
}

// deltas are how the frames begin that a child writes one of for each word of a model.
// What follows is one string.
var deltas = []string{
	`{"type":"message_update","event":{"type":"text_delta","delta":"`,
	`{"type":"message_update","event":{"type":"thinking_delta","delta":"`,
}

// plainDelta reports whether a line, which is valid JSON, is a delta as we write it
// ourselves, without a quote in its text: then nothing stands twice in it, and no member
// need be looked at to know that. An escape may stand for half a character, which
// [strict.Valid] sees.
func plainDelta(line []byte) bool {
	for _, begin := range deltas {
		if text, ok := bytes.CutPrefix(line, []byte(begin)); ok {
			text, ok = bytes.CutSuffix(text, []byte(`"}}`))
			return ok && bytes.IndexByte(text, '"') < 0 && !bytes.Contains(text, []byte(`\u`))
		}
	}
	return false
}
