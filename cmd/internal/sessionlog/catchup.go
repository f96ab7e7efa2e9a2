package sessionlog

import (
	"bytes"
	"context"
	"io"
	"os"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/sessions"
)

// CatchUp logs what the sessions of a home have and a server that was killed did not log. It is for the home's
// next server, before it removes what temporary agents left: of these the pieces of an answer that was
// never whole are logged, too. It takes an archive that Create returned.
func (a *Archive) CatchUp(ctx context.Context, home string, catalogue *sessions.Catalogue) error {
	return a.catchUp(ctx, home, catalogue, func(agent string) bool { return api.IsTemp(agent) && agent != catalogue.Last() })
}

// catchUp is CatchUp, where ends says of which agents nothing more will come.
func (a *Archive) catchUp(ctx context.Context, home string, catalogue *sessions.Catalogue, ends func(agent string) bool) error {
	rows, ids, err := a.unfinished(ctx, home)
	if err != nil {
		return err
	}
	for i, r := range rows {
		if !catalogue.There(r.agent) {
			continue
		}
		s, ok := openSession(catalogue.Path(r.agent))
		if !ok {
			continue
		}
		if s.header.SessionID == ids[i] {
			err = a.readRest(ctx, r, s, ends(r.agent))
		}
		if s.file.Close(); err != nil {
			return err
		}
	}
	return nil
}

// unfinished are the sessions of a home that may be gone on with, and their ids.
func (a *Archive) unfinished(ctx context.Context, home string) (all []*row, ids []string, err error) {
	rows, err := a.db.QueryContext(ctx, `SELECT id, agent_id, session_id, session_type, folder, registration, seq, session_bytes, markdown_bytes, events_bytes
		FROM sessions WHERE home = ? AND session_status <> 'destroyed' ORDER BY id`, home)
	if err != nil {
		return nil, nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var id string
		r := &row{}
		if err := rows.Scan(&r.id, &r.agent, &id, &r.kind, &r.folder, &r.registration, &r.seq, &r.sessionBytes, &r.markdownBytes, &r.eventsBytes); err != nil {
			return nil, nil, err
		}
		all, ids = append(all, r), append(ids, id)
	}
	return all, ids, rows.Err()
}

// readRest logs what a session has that is not logged; last says that nothing more will come.
func (a *Archive) readRest(ctx context.Context, r *row, s *session, last bool) error {
	for {
		p, err := s.read(r.sessionBytes, last)
		if err != nil || len(p.entries) == 0 && p.next == r.sessionBytes {
			return err
		}
		if last && !r.tidied {
			if r.eventsBytes, err = a.wholeLines(r); err != nil {
				return err
			}
		}
		if err := a.write(ctx, r, update{entries: p.entries, seq: r.seq, read: p.next, head: headOf(r.agent, s.header)}); err != nil || !p.more {
			return err
		}
	}
}

// wholeLines is how long the events are that were written, also after the last commit: those of a session
// that goes on are read again, and of others nothing else is left.
func (a *Archive) wholeLines(r *row) (int64, error) {
	file, err := a.root.Open(r.folder + "/" + eventsName)
	if os.IsNotExist(err) {
		return r.eventsBytes, nil
	}
	if err != nil {
		return 0, err
	}
	defer file.Close()
	tail, err := io.ReadAll(io.NewSectionReader(file, r.eventsBytes, maxLine))
	return r.eventsBytes + int64(bytes.LastIndexByte(tail, '\n')+1), err
}
