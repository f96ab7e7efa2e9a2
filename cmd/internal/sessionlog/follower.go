package sessionlog

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strconv"
	"time"

	"go.uber.org/zap"

	"nexus.internal/bridge/api"
	"nexus.internal/protocol"
	"nexus.internal/supervisor"
)

// storedBatch is how many events of an agent that is gone are logged at once.
const storedBatch = 64

// errAnew says that a follower has found the session.
var errAnew = errors.New("the session is there")

// follower logs one stay of an agent in the server. It belongs to one goroutine.
type follower struct {
	r       *Recorder
	reg     supervisor.Registration
	log     *zap.Logger
	session *session // nil before there is one
	row     *row     // nil before it is claimed
	claimed int64    // the session that is this follower's to write; 0 for none
	seq     uint64   // the last event that was read; after an error those after row.seq are read again
	raw     []byte   // lines for events.jsonl
}

// run logs until the agent is gone and all was logged, or ctx ends.
func (f *follower) run(ctx context.Context) {
	defer func() {
		if f.session != nil {
			f.session.file.Close()
		}
		f.r.release(f.claimed)
	}()
	for {
		err := f.follow(ctx)
		if errors.Is(err, io.EOF) {
			if err = f.end(ctx); err == nil {
				return
			}
		}
		switch {
		case errors.Is(err, errSuperseded):
			return
		case errors.Is(err, errAnew), errors.Is(err, supervisor.ErrSlow):
		case ctx.Err() != nil:
			f.log.Error("the end of a session is not logged", zap.Error(errors.Join(ctx.Err(), err)))
			return
		default:
			f.r.failed(err)
			f.row = nil // what was not committed is read again
			wait := time.NewTimer(retryAfter)
			select {
			case <-wait.C:
			case <-ctx.Done():
				wait.Stop()
			}
		}
	}
}

// follow logs what comes after what is logged. The error is io.EOF after the agent's last event,
// errAnew where it is to be called again, that of the subscription, of ctx, or of the disk.
func (f *follower) follow(ctx context.Context) error {
	switch {
	case f.session == nil:
		f.seq = f.reg.Since
	case f.row == nil:
		if err := f.claim(ctx); err != nil {
			return err
		}
		f.seq, f.raw = f.row.seq, nil
	}
	if f.reg.Agent == nil {
		return f.followStored(ctx)
	}
	events := f.reg.Subscribe(f.seq)
	defer events.Close()
	for {
		batch, err := events.Next(ctx)
		if err != nil {
			return err
		}
		if f.session == nil { // what comes before there is one is read again
			found, ok := openSession(f.r.o.Sessions.Path(f.reg.ID))
			if !ok {
				continue
			}
			f.session = found
			return errAnew
		}
		if err := f.take(ctx, batch); err != nil {
			return err
		}
	}
}

// claim takes the session's row, for this follower alone.
func (f *follower) claim(ctx context.Context) error {
	parent := f.parent()
	id, err := f.r.archive.find(ctx, f.r.o.Home, f.session.header, f.reg, parent)
	if err != nil {
		return err
	}
	f.r.release(f.claimed)
	f.claimed = 0
	if err := f.r.claim(ctx, id, f.reg.Number); err != nil {
		return err
	}
	f.claimed = id
	f.row, err = f.r.archive.activate(ctx, id, f.reg, parent)
	return err
}

// parent is the agent that this one was created for; "" for none.
func (f *follower) parent() string {
	if f.reg.Agent != nil {
		return f.reg.Agent.Info().Labels.Parent
	}
	saved, err := f.r.o.Sessions.Summary(f.reg.ID)
	if err != nil {
		return "" // it is gone, or cannot be read
	}
	return protocol.Value(saved.Settings.ParentAgentID)
}

// followStored is follow for an agent that was gone before it was seen: its events are on disk.
func (f *follower) followStored(ctx context.Context) error {
	if f.session == nil {
		return io.EOF
	}
	read, batch := f.seq, []supervisor.Event(nil)
	skip := func(to uint64) {
		if read < to {
			batch = append(batch, supervisor.GapEvent(read+1, to))
			read = to
		}
	}
	for e, err := range f.r.o.History.Events(f.reg.ID, f.seq) {
		if err != nil {
			f.log.Warn("events of an agent that is gone are not read", zap.Error(err))
			break
		}
		if e.Seq > f.reg.Last || f.r.o.Supervisor.Gone(f.reg.Number) { // they are of another agent
			break
		}
		skip(e.Seq - 1)
		batch, read = append(batch, e), e.Seq
		if len(batch) < storedBatch {
			continue
		}
		if err := f.take(ctx, batch); err != nil {
			return err
		}
		batch = nil
	}
	skip(f.reg.Last)
	if err := f.take(ctx, batch); err != nil {
		return err
	}
	return io.EOF
}

// take logs a batch of events and, where they tell of more, what the session has.
func (f *follower) take(ctx context.Context, batch []supervisor.Event) error {
	now := timeOf(time.Now())
	var entries []Entry
	for _, e := range batch {
		entry, ok := ofEvent(e, now)
		if ok || tellsOfMore(e) { // what the session has of the time before stands before it
			if err := f.read(ctx, false); err != nil {
				return err
			}
		}
		if f.r.o.Events {
			f.raw = appendEvent(f.raw, now, e)
		}
		if ok {
			entries = append(entries, entry)
		}
		if e.Seq != 0 {
			f.seq = e.Seq
		}
		if len(entries) > 0 || len(f.raw) > maxPiece {
			if err := f.commit(ctx, entries, f.row.sessionBytes, ""); err != nil {
				return err
			}
			entries = nil
		}
	}
	if len(f.raw) == 0 {
		return nil
	}
	if err := f.r.archive.writeEvents(f.row, f.raw); err != nil { // what is not committed is overwritten after a kill
		return err
	}
	f.raw = f.raw[:0]
	return nil
}

// read logs what the session has that is not logged.
func (f *follower) read(ctx context.Context, last bool) error {
	for {
		p, err := f.session.read(f.row.sessionBytes, last)
		if err != nil {
			return err
		}
		if len(p.entries) > 0 || p.next != f.row.sessionBytes {
			if err := f.commit(ctx, p.entries, p.next, ""); err != nil {
				return err
			}
		}
		if !p.more {
			return nil
		}
	}
}

// end logs what there is when the agent is gone, and what became of its session.
func (f *follower) end(ctx context.Context) error {
	if f.session == nil {
		found, ok := openSession(f.r.o.Sessions.Path(f.reg.ID))
		if !ok { // there never was one
			if f.reg.Agent == nil && api.IsTemp(f.reg.ID) {
				f.log.Warn("a temporary agent was gone before it was logged")
			}
			return nil
		}
		f.session = found
		return errAnew
	}
	if err := f.read(ctx, true); err != nil {
		return err
	}
	status := "destroyed"
	if kept(f.r.o.Sessions, f.reg.ID) {
		status = "saved"
	}
	return f.commit(ctx, nil, f.row.sessionBytes, status)
}

// commit logs entries, and with them how far the session and the events were read. status is the
// session's new one; "" leaves it.
func (f *follower) commit(ctx context.Context, entries []Entry, read int64, status string) error {
	err := f.r.archive.write(ctx, f.row, update{entries: entries, raw: f.raw, seq: f.seq, read: read, status: status, head: headOf(f.reg.ID, f.session.header)})
	if err != nil {
		return err
	}
	f.raw = f.raw[:0]
	f.r.worked()
	return nil
}

// appendEvent appends a line for events.jsonl: when it was logged, its number (missing for a
// piece of output, which has none) and the event as the agent wrote it.
func appendEvent(dst []byte, at string, e supervisor.Event) []byte {
	dst = append(append(append(dst, `{"logged_at":"`...), at...), '"')
	if e.Seq != 0 {
		dst = strconv.AppendUint(append(dst, `,"seq":`...), e.Seq, 10)
	}
	event := e.Data
	if mayHaveKey(event) {
		event = []byte(clean(string(event)))
	}
	return append(append(append(dst, `,"event":`...), event...), '}', '\n')
}

// mayHaveKey is true for all that clean changes: each kind of key has one of these.
func mayHaveKey(text []byte) bool {
	for _, mark := range []string{"nxk_", "nxc_", "sk-", "bearer", "basic"} {
		if bytes.Contains(text, []byte(mark)) || mark[0] == 'b' && bytes.Contains(bytes.ToLower(text), []byte(mark)) {
			return true
		}
	}
	return false
}

// typeOf is the type of an agent's session.
func typeOf(agent, parent string) string {
	switch {
	case parent != "":
		return "subagent"
	case api.IsTemp(agent):
		return "temp"
	default:
		return "saved"
	}
}
