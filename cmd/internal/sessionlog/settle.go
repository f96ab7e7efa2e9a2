package sessionlog

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"time"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/homelock"
	"nexus.internal/bridge/sessions"
	"nexus.internal/protocol/safefile"
)

// kept reports whether the session of an agent that has ended is there to be gone on with: a temporary
// agent's goes with it, unless a person used it last.
func kept(catalogue *sessions.Catalogue, agent string) bool {
	return catalogue.There(agent) && (!api.IsTemp(agent) || catalogue.Last() == agent)
}

// logged is a session of the database as Settle looks at it.
type logged struct {
	id                     int64
	agent, session, status string
}

// Settle marks sessions whose agents are not logged by what is in their home: as active if the session is there, under whatever name,
// and its agent in the home's server, which runs says of a name (nil if that is not known: each may be, unless a server logs here); as saved if it is there otherwise; as destroyed if it was and is not any
// more. Unless a server logs here, those that are active are orphaned if their session is gone: the server was killed. Of those that are
// there, what it did not log is logged.
func (a *Archive) Settle(ctx context.Context, home string, catalogue *sessions.Catalogue, runs func(agent string) bool) error {
	alone, err := a.takeLock()
	if err != nil {
		return err
	}
	if runs == nil {
		runs = func(string) bool { return alone }
	}
	if !alone {
		return a.settle(ctx, home, catalogue, false, runs)
	}
	defer func() {
		safefile.Release(a.lock)
		a.lock = nil
	}()
	return errors.Join(a.catchUp(ctx, home, catalogue, func(string) bool { return false }), a.settle(ctx, home, catalogue, true, runs))
}

// inNoServer is the argument of settle where no other agents are in the home's server than those that it logs.
func inNoServer(string) bool { return false }

// settle is Settle, where alone says that no agent is logged now.
func (a *Archive) settle(ctx context.Context, home string, catalogue *sessions.Catalogue, alone bool, runs func(agent string) bool) error {
	return a.inTransaction(ctx, func(tx *sql.Tx) error {
		if alone {
			if err := orphan(tx, home); err != nil {
				return err
			}
		}
		var names map[string]string // of the home's sessions, by their ids
		all, err := rowsOf(tx, home)
		for _, l := range all {
			name, status := l.agent, "saved"
			if !isAt(catalogue, name, l.session, runs) {
				if names == nil && l.status != "destroyed" {
					names = namesOf(catalogue)
				}
				name = names[l.session]
			}
			switch {
			case name != "" && runs(name):
				status = "active"
			case name == "":
				name, status = l.agent, l.status
				if status == "saved" {
					status = "destroyed"
				}
			}
			if status == l.status && name == l.agent {
				continue
			}
			if _, err := tx.Exec("UPDATE sessions SET session_status = ?, agent_id = ? WHERE id = ? AND session_status = ?", status, name, l.id, l.status); err != nil {
				return err
			}
		}
		return err
	})
}

// orphan marks the sessions that are active and not logged any more, except those of other homes that a server holds: it may have
// their agents, and does not log them here.
func orphan(tx *sql.Tx, home string) error {
	homes, err := homesOf(tx)
	if err != nil {
		return err
	}
	for _, of := range homes {
		if server, err := homelock.Find(of); of != home && err == nil && server.Runs {
			continue
		}
		if _, err := tx.Exec("UPDATE sessions SET session_status = 'orphaned' WHERE session_status = 'active' AND home = ?", of); err != nil {
			return err
		}
	}
	return nil
}

// homesOf are the homes of the sessions that are active.
func homesOf(tx *sql.Tx) (homes []string, err error) {
	rows, err := tx.Query("SELECT DISTINCT home FROM sessions WHERE session_status = 'active'")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var home string
		if err := rows.Scan(&home); err != nil {
			return nil, err
		}
		homes = append(homes, home)
	}
	return homes, rows.Err()
}

// rowsOf are the sessions of a home that are in no server.
func rowsOf(tx *sql.Tx, home string) (all []logged, err error) {
	rows, err := tx.Query("SELECT id, agent_id, session_id, session_status FROM sessions WHERE home = ? AND session_status <> 'active'", home)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var l logged
		if err := rows.Scan(&l.id, &l.agent, &l.session, &l.status); err != nil {
			return nil, err
		}
		all = append(all, l)
	}
	return all, rows.Err()
}

// isAt reports whether the session of that id is kept under a name, or its agent runs.
func isAt(catalogue *sessions.Catalogue, name, id string, runs func(agent string) bool) bool {
	if !kept(catalogue, name) && !(runs(name) && catalogue.There(name)) {
		return false
	}
	s, ok := openSession(catalogue.Path(name))
	if !ok {
		return false
	}
	defer s.file.Close()
	return s.header.SessionID == id
}

// namesOf are the names of the named sessions of a home by their ids.
func namesOf(catalogue *sessions.Catalogue) map[string]string {
	names := map[string]string{}
	entries, _ := os.ReadDir(catalogue.Dir("named")) // none are there, then
	for _, entry := range entries {
		name, is := strings.CutSuffix(entry.Name(), ".jsonl")
		if !is || !catalogue.Exists(name) {
			continue
		}
		if s, ok := openSession(filepath.Join(catalogue.Dir("named"), entry.Name())); ok {
			names[s.header.SessionID] = name
			s.file.Close()
		}
	}
	return names
}

// Clean removes the logs of sessions whose last entry is before a time, and returns them. Only what filter selects
// goes, never a session whose agent is in a server, and unless the filter names that status none that is saved. With dry
// nothing is removed.
func (a *Archive) Clean(ctx context.Context, before time.Time, filter Filter, dry bool) (removed []Session, err error) {
	err = a.inTransaction(ctx, func(tx *sql.Tx) error {
		all, err := list(tx, filter)
		if err != nil {
			return err
		}
		for _, s := range all {
			if s.Status == "active" || s.Status == "saved" && filter.Status != "saved" || s.UpdatedAt >= timeOf(before) {
				continue
			}
			removed = append(removed, s)
			if dry {
				continue
			}
			if err := a.root.RemoveAll(s.Folder); err != nil { // before its row: what a kill leaves is removed the next time
				return err
			}
			if _, err := tx.Exec("DELETE FROM sessions WHERE id = ?", s.ID); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if len(removed) > 0 && !dry {
		_, vacuum := a.db.ExecContext(ctx, "PRAGMA incremental_vacuum")
		_, checkpoint := a.db.ExecContext(ctx, "PRAGMA wal_checkpoint(TRUNCATE)") // what was removed is in that file, too
		err = errors.Join(vacuum, checkpoint)
	}
	return removed, err
}
