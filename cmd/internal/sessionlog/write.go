package sessionlog

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"

	"nexus.internal/protocol/transcript"
	"nexus.internal/supervisor"
)

// row is how far the log of a session has come.
type row struct {
	id            int64
	agent         string
	kind          string // session_type
	folder        string
	registration  uint64
	seq           uint64
	sessionBytes  int64
	markdownBytes int64
	eventsBytes   int64 // also of lines that are not committed
	tidied        bool  // what a kill left behind the committed bytes of both files is gone
}

// find returns the number of a session, which it adds if need be.
func (a *Archive) find(ctx context.Context, home string, h transcript.Header, reg supervisor.Registration, parent string) (id int64, err error) {
	err = a.inTransaction(ctx, func(tx *sql.Tx) error {
		get := func() error {
			return tx.QueryRow("SELECT id FROM sessions WHERE home = ? AND session_id = ?", home, h.SessionID).Scan(&id)
		}
		if err := get(); !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		folder := fmt.Sprintf("%s_%s_%s", h.CreatedAt.UTC().Format("2006-01-02_150405"), reg.ID, inName(h.SessionID))
		_, err := tx.Exec(`INSERT INTO sessions (home, session_id, agent_id, session_type, session_status, created_at, updated_at, folder, seq)
			VALUES (?, ?, ?, ?, 'active', ?, ?, ?, ?)`,
			home, h.SessionID, reg.ID, typeOf(reg.ID, parent), timeOf(h.CreatedAt), timeOf(h.CreatedAt), folder, int64(reg.Since))
		if err != nil {
			return err
		}
		return get()
	})
	return id, err
}

// inName is the beginning of an id as it may stand in the name of a folder.
func inName(id string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(id[:min(8, len(id))]))
}

// activate marks a session as one whose agent is in the server, and returns its row.
func (a *Archive) activate(ctx context.Context, id int64, reg supervisor.Registration, parent string) (*row, error) {
	r := &row{id: id, agent: reg.ID, kind: typeOf(reg.ID, parent), registration: reg.Number}
	err := a.inTransaction(ctx, func(tx *sql.Tx) error {
		var before uint64
		err := tx.QueryRow("SELECT folder, registration, seq, session_bytes, markdown_bytes, events_bytes FROM sessions WHERE id = ?", id).
			Scan(&r.folder, &before, &r.seq, &r.sessionBytes, &r.markdownBytes, &r.eventsBytes)
		if err != nil {
			return err
		}
		if before != reg.Number && r.seq > reg.Since { // numbers began anew, or the last events were lost with the server
			r.seq = reg.Since
		}
		_, err = tx.Exec("UPDATE sessions SET session_status = 'active', agent_id = ?, session_type = ?, parent_agent_id = nullif(?, ''), registration = ? WHERE id = ?",
			r.agent, r.kind, parent, int64(reg.Number), id)
		return err
	})
	if err != nil {
		return nil, err
	}
	return r, nil
}

// update is what is logged of a session at once.
type update struct {
	entries []Entry
	raw     []byte // lines for events.jsonl
	seq     uint64 // the last event that was read
	read    int64  // so much of the session was
	status  string // "": as it is
	head    string // of session.md
}

// errGone says that somebody has removed the log of a session meanwhile.
var errGone = errors.New("the log of the session was removed")

// write logs an update, and changes r, or leaves both as they were. The files are written before the
// database says how long they are: what a kill leaves behind that is overwritten.
func (a *Archive) write(ctx context.Context, r *row, u update) error {
	next := *r
	if err := a.tidy(&next); err != nil {
		return err
	}
	var text []byte
	if len(u.entries) > 0 && next.markdownBytes == 0 {
		text = append(text, u.head...)
	}
	messages, latest := 0, ""
	for i := range u.entries {
		e := &u.entries[i]
		e.Text, e.Name = clean(e.Text), clean(e.Name)
		text = appendMarkdown(text, *e)
		latest = max(latest, e.At)
		if e.Kind == "user" || e.Kind == "assistant" {
			messages++
		}
	}
	if err := a.append(next.folder, markdownName, &next.markdownBytes, text); err != nil {
		return err
	}
	if err := a.append(next.folder, eventsName, &next.eventsBytes, u.raw); err != nil {
		return err
	}
	next.seq, next.sessionBytes = u.seq, u.read
	err := a.inTransaction(ctx, func(tx *sql.Tx) error {
		for _, e := range u.entries {
			_, err := tx.Exec("INSERT INTO entries (session, at, kind, turn_id, name, text) VALUES (?, ?, ?, ?, ?, ?)", r.id, e.At, e.Kind, e.TurnID, e.Name, e.Text)
			if err != nil {
				return err
			}
		}
		done, err := tx.Exec(`UPDATE sessions SET seq = ?, session_bytes = ?, markdown_bytes = ?, events_bytes = ?, messages = messages + ?,
			session_status = coalesce(nullif(?, ''), session_status), updated_at = max(updated_at, ?) WHERE id = ? AND registration = ?`,
			int64(next.seq), next.sessionBytes, next.markdownBytes, next.eventsBytes, messages, u.status, latest, r.id, int64(r.registration))
		if err != nil {
			return err
		}
		if n, err := done.RowsAffected(); err != nil || n == 0 {
			return errors.Join(errGone, err)
		}
		return nil
	})
	if err == nil {
		*r = next
	}
	return err
}

// writeEvents appends lines to events.jsonl. They are committed with the next write.
func (a *Archive) writeEvents(r *row, lines []byte) error {
	if err := a.tidy(r); err != nil {
		return err
	}
	return a.append(r.folder, eventsName, &r.eventsBytes, lines)
}

// tidy cuts off what a kill left in the files of a session, once.
func (a *Archive) tidy(r *row) error {
	if r.tidied {
		return nil
	}
	if err := a.root.Mkdir(r.folder, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	for name, length := range map[string]*int64{markdownName: &r.markdownBytes, eventsName: &r.eventsBytes} {
		path := r.folder + "/" + name
		switch info, err := a.root.Lstat(path); {
		case errors.Is(err, os.ErrNotExist):
			*length = 0
		case err != nil:
			return err
		case info.Size() < *length:
			*length = info.Size()
		case info.Size() > *length:
			file, err := a.open(path)
			if err != nil {
				return err
			}
			if err := errors.Join(file.Truncate(*length), file.Close()); err != nil {
				return err
			}
		}
	}
	r.tidied = true
	return nil
}

// append writes text at an offset of a file, which it moves on.
func (a *Archive) append(folder, name string, at *int64, text []byte) error {
	if len(text) == 0 {
		return nil
	}
	file, err := a.open(folder + "/" + name)
	if err != nil {
		return err
	}
	_, err = file.WriteAt(text, *at)
	if err = errors.Join(err, file.Close()); err == nil {
		*at += int64(len(text))
	}
	return err
}

// open opens a file of a session for writing, and follows no link.
func (a *Archive) open(path string) (*os.File, error) {
	file, err := a.root.OpenFile(path, os.O_WRONLY|os.O_CREATE|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, err
	}
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(fmt.Errorf("%s in %s is not a regular file", path, a.dir), err, file.Close())
	}
	return file, nil
}
