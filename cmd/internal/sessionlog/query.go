package sessionlog

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
)

// Filter selects sessions; "" selects any.
type Filter struct {
	Agent, Type, Status string
}

// The values of a Filter's Type and Status.
var (
	Types    = []string{"saved", "temp", "subagent"}
	Statuses = []string{"active", "saved", "destroyed", "orphaned"}
)

// Session is one session that is logged.
type Session struct {
	ID        int64   `json:"id"`
	SessionID string  `json:"session_id"`
	AgentID   string  `json:"agent_id"`
	Type      string  `json:"session_type"`
	Status    string  `json:"session_status"`
	Parent    *string `json:"parent_agent_id"`
	CreatedAt string  `json:"created_at"` // RFC 3339, UTC
	UpdatedAt string  `json:"updated_at"` // the time of the last entry, also of one that was logged later; without any, CreatedAt
	Messages  uint64  `json:"messages"`
	Folder    string  `json:"folder"` // from list: relative to the archive's directory; else absolute
}

// querier is the database or a transaction.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

func list(db querier, f Filter) (all []Session, err error) {
	rows, err := db.QueryContext(context.Background(), `SELECT id, session_id, agent_id, session_type, session_status, parent_agent_id, created_at, updated_at, messages, folder
		FROM sessions WHERE ?1 IN ('', agent_id) AND ?2 IN ('', session_type) AND ?3 IN ('', session_status) ORDER BY updated_at DESC, id DESC`, f.Agent, f.Type, f.Status)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	all = []Session{}
	for rows.Next() {
		var s Session
		if err := rows.Scan(&s.ID, &s.SessionID, &s.AgentID, &s.Type, &s.Status, &s.Parent, &s.CreatedAt, &s.UpdatedAt, &s.Messages, &s.Folder); err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, rows.Err()
}

// List returns the sessions that a filter selects, the latest first.
func (a *Archive) List(f Filter) ([]Session, error) {
	all, err := list(a.db, f)
	for i := range all {
		all[i].Folder = filepath.Join(a.dir, all[i].Folder)
	}
	return all, err
}

// Find returns the session of that number, or the latest of the agent of that name.
func (a *Archive) Find(name string) (Session, error) {
	all, err := a.List(Filter{})
	if err != nil {
		return Session{}, err
	}
	number, failed := strconv.ParseInt(name, 10, 64)
	for _, s := range all {
		if failed == nil && s.ID == number {
			return s, nil
		}
	}
	for _, s := range all {
		if s.AgentID == name {
			return s, nil
		}
	}
	return Session{}, fmt.Errorf("no session that is logged in %s has the number or the agent %s", a.dir, name)
}

// Entries yields the entries of a session in their order. An error of yield ends that, and is returned.
func (a *Archive) Entries(ctx context.Context, session int64, yield func(Entry) error) error {
	return a.each(ctx, yield, "SELECT id, session, at, kind, turn_id, name, text FROM entries WHERE session = ? ORDER BY id", session)
}

// Found is an entry that has the words.
type Found struct {
	Entry
	AgentID string `json:"agent_id"`
	// Excerpt is the text around the words, each between "[" and "]".
	Excerpt string `json:"excerpt"`
}

// Search returns the latest entries, at most limit (0: all), that have all words, in any order; a word that ends
// in * stands for all that begin so, and several in one argument for that phrase.
func (a *Archive) Search(ctx context.Context, words []string, f Filter, limit int) (found []Found, err error) {
	rows, err := a.db.QueryContext(ctx, `SELECT e.id, e.session, e.at, e.kind, e.turn_id, e.name, e.text, s.agent_id, snippet(words, 0, '[', ']', '…', 16)
		FROM words JOIN entries e ON e.id = words.rowid JOIN sessions s ON s.id = e.session
		WHERE words MATCH ?1 AND ?2 IN ('', s.agent_id) AND ?3 IN ('', s.session_type) AND ?4 IN ('', s.session_status)
		ORDER BY e.id DESC LIMIT ?5`, match(words), f.Agent, f.Type, f.Status, cmp.Or(limit, -1))
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	found = []Found{}
	for rows.Next() {
		var e Found
		if err := rows.Scan(&e.ID, &e.Session, &e.At, &e.Kind, &e.TurnID, &e.Name, &e.Text, &e.AgentID, &e.Excerpt); err != nil {
			return nil, err
		}
		found = append(found, e)
	}
	return found, rows.Err()
}

// match is words in the language of FTS5, in which they mean nothing but themselves.
func match(words []string) string {
	var quoted []string
	for _, word := range words {
		word, prefix := strings.CutSuffix(word, "*")
		word = `"` + strings.ReplaceAll(word, `"`, `""`) + `"`
		if prefix {
			word += "*"
		}
		quoted = append(quoted, word)
	}
	return strings.Join(quoted, " ")
}

// each yields the entries of a query.
func (a *Archive) each(ctx context.Context, yield func(Entry) error, query string, args ...any) error {
	rows, err := a.db.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var e Entry
		err := rows.Scan(&e.ID, &e.Session, &e.At, &e.Kind, &e.TurnID, &e.Name, &e.Text)
		if err == nil {
			err = yield(e)
		}
		if err != nil {
			return errors.Join(err, rows.Close())
		}
	}
	return rows.Err()
}
