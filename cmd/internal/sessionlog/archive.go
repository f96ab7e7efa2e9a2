package sessionlog

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"nexus.internal/protocol/safefile"
)

// The names in a directory of logs.
const (
	databaseName = "logs.db"
	lockName     = "lock"
	markdownName = "session.md"
	eventsName   = "events.jsonl"
)

// version is that of the tables. A later one is refused.
const version = 1

// tables are made in an empty database.
const tables = `
CREATE TABLE sessions (
	id              INTEGER PRIMARY KEY,
	home            TEXT NOT NULL, -- of the server
	session_id      TEXT NOT NULL, -- that of the session's first line
	agent_id        TEXT NOT NULL,
	session_type    TEXT NOT NULL CHECK (session_type IN ('saved', 'temp', 'subagent')),
	session_status  TEXT NOT NULL CHECK (session_status IN ('active', 'saved', 'destroyed', 'orphaned')),
	parent_agent_id TEXT,          -- the agent that it was created for
	created_at      TEXT NOT NULL, -- RFC 3339, UTC, as all times
	updated_at      TEXT NOT NULL, -- the time of the last entry; without any, created_at
	messages        INTEGER NOT NULL DEFAULT 0,
	folder          TEXT NOT NULL, -- beside this file
	registration    INTEGER NOT NULL DEFAULT 0, -- of the agent that is logged, or was last
	seq             INTEGER NOT NULL DEFAULT 0, -- the last event that was read
	session_bytes   INTEGER NOT NULL DEFAULT 0, -- so much of the session was read,
	markdown_bytes  INTEGER NOT NULL DEFAULT 0, -- and so much of these files written
	events_bytes    INTEGER NOT NULL DEFAULT 0,
	UNIQUE (home, session_id)
);
CREATE TABLE entries (
	id      INTEGER PRIMARY KEY,
	session INTEGER NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
	at      TEXT NOT NULL,
	kind    TEXT NOT NULL, -- user, assistant, thinking, tool_call, tool_result, tool_error, …
	turn_id TEXT NOT NULL,
	name    TEXT NOT NULL, -- of a tool, or who is meant
	text    TEXT NOT NULL
);
CREATE INDEX entries_of_session ON entries (session, id);
CREATE VIRTUAL TABLE words USING fts5 (text, content = 'entries', content_rowid = 'id');
INSERT INTO words (words, rank) VALUES ('secure-delete', 1);
CREATE TRIGGER entries_added AFTER INSERT ON entries BEGIN
	INSERT INTO words (rowid, text) VALUES (new.id, new.text);
END;
CREATE TRIGGER entries_removed AFTER DELETE ON entries BEGIN
	INSERT INTO words (words, rowid, text) VALUES ('delete', old.id, old.text);
END;
PRAGMA user_version = 1;
`

// How often, and after which time, a lock is tried that somebody has.
const (
	lockTries = 20
	lockPause = 50 * time.Millisecond
)

// ErrNone says that a directory has no logs.
var ErrNone = errors.New("there are no session logs")

// Archive is a directory of logs. It must be closed.
type Archive struct {
	dir  string // absolute
	root *os.Root
	db   *sql.DB
	lock *os.File // nil if it is not ours
}

// Create opens the directory of a server's logs, which it makes if need be, for this server
// alone: it is an error if another one uses it, or if it has files and no logs. Close gives it up.
func Create(dir string) (*Archive, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("open the session logs: %w", err)
	}
	if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, fmt.Errorf("open the session logs: %w", err)
		}
	}
	a, err := openOwn(dir)
	if err != nil {
		return nil, err
	}
	if err := a.claim(); err != nil {
		return nil, errors.Join(err, a.Close())
	}
	if err := a.begin(); err != nil {
		return nil, errors.Join(err, a.Close())
	}
	return a, nil
}

// Check reports why Create would refuse a directory, as far as that is seen without a change of anything.
func Check(dir string) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return fmt.Errorf("open the session logs: %w", err)
	}
	there := dir
	for {
		if _, err := os.Lstat(there); !errors.Is(err, fs.ErrNotExist) {
			break
		}
		there = filepath.Dir(there)
	}
	if there != dir {
		if err := safefile.CheckWritable(there); err != nil {
			return fmt.Errorf("open the session logs: %w", err)
		}
		return nil
	}
	a, err := openOwn(dir)
	if err != nil {
		return err
	}
	if _, failed := a.root.Lstat(lockName); failed == nil { // else nobody has ever used it
		err = a.claim()
	}
	return errors.Join(err, a.Close())
}

// claim makes this process the one that logs there.
func (a *Archive) claim() (err error) {
	locked := false
	for tries := 0; !locked && err == nil && tries < lockTries; tries++ { // a Settle has the lock for a moment
		if locked, err = a.takeLock(); !locked {
			<-time.After(lockPause)
		}
	}
	if err != nil {
		return fmt.Errorf("open the session logs: %w", err)
	}
	if !locked {
		return fmt.Errorf("another nexus server logs sessions in %s: choose another --log-dir", a.dir)
	}
	return nil
}

// Open opens a directory that has logs, which a server may use meanwhile. The error wraps ErrNone if there are none.
func Open(dir string) (*Archive, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("open the session logs: %w", err)
	}
	if _, err := os.Lstat(filepath.Join(dir, databaseName)); errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w in %s", ErrNone, dir)
	}
	a, err := open(dir)
	if err != nil {
		return nil, err
	}
	if err := a.begin(); err != nil {
		return nil, errors.Join(err, a.Close())
	}
	return a, nil
}

// open checks a directory and opens it, but for its database.
func open(dir string) (*Archive, error) {
	if err := check(dir); err != nil {
		return nil, fmt.Errorf("open the session logs: %w", err)
	}
	root, err := safefile.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("open the session logs: %w", err)
	}
	return &Archive{dir: dir, root: root}, nil
}

// openOwn is open of a directory that has nothing but logs.
func openOwn(dir string) (*Archive, error) {
	a, err := open(dir)
	if err != nil {
		return nil, err
	}
	if err := a.checkOwn(); err != nil {
		return nil, errors.Join(fmt.Errorf("open the session logs: %w", err), a.Close())
	}
	return a, nil
}

// checkOwn refuses a directory with files of others and no logs: those of sessions would lie among them.
func (a *Archive) checkOwn() error {
	entries, err := os.ReadDir(a.dir)
	if err != nil {
		return err
	}
	strange := ""
	for _, entry := range entries {
		switch name := entry.Name(); {
		case name == databaseName:
			return nil
		case name == lockName || strings.HasPrefix(name, databaseName) || name == "lost+found": // a kill can leave these, and a disk has that
		case strange == "":
			strange = name
		}
	}
	if strange != "" {
		return fmt.Errorf("%s has files (%s) and no logs of sessions: name a directory that is empty, or not there yet", a.dir, strange)
	}
	return nil
}

// check refuses a directory in which somebody else could put files, and files
// in the place of the database's that are not our own.
func check(dir string) error {
	info, err := os.Lstat(dir)
	switch {
	case err != nil:
		return err
	case info.Mode()&fs.ModeSymlink != 0:
		return fmt.Errorf("%s is a symbolic link: name the directory itself", dir)
	case !info.IsDir():
		return fmt.Errorf("%s is not a directory", dir)
	case !safefile.Ours(info):
		return fmt.Errorf("%s is another user's: choose another directory", dir)
	case !safefile.OwnerWrites(info):
		return fmt.Errorf("%s has mode %04o: others could put files there (chmod 700 %s)", dir, info.Mode().Perm(), dir)
	}
	for _, name := range []string{databaseName, databaseName + "-wal", databaseName + "-shm", databaseName + "-journal"} {
		switch info, err := os.Lstat(filepath.Join(dir, name)); {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return err
		case !info.Mode().IsRegular() || !safefile.Ours(info):
			return fmt.Errorf("%s is not a file of yours: remove it", filepath.Join(dir, name))
		}
	}
	return nil
}

// takeLock reports whether this process is the one that logs; it stays that until Close.
func (a *Archive) takeLock() (bool, error) {
	file, err := safefile.Open(filepath.Join(a.dir, lockName), os.O_RDWR|os.O_CREATE)
	if err != nil {
		return false, err
	}
	if err := safefile.Lock(file); err != nil {
		file.Close()
		if errors.Is(err, safefile.ErrLocked) {
			err = nil
		}
		return false, err
	}
	a.lock = file
	return true, nil
}

// begin opens the database, and makes its tables where it is new.
func (a *Archive) begin() (err error) {
	path := filepath.Join(a.dir, databaseName)
	defer func() {
		if err != nil {
			err = fmt.Errorf("open the session logs %s: %w", path, err)
		}
	}()
	if !slices.Contains(sql.Drivers(), "sqlite") {
		return errors.New("there is no SQLite for this system, so sessions cannot be logged")
	}
	file, err := safefile.Open(path, os.O_RDWR|os.O_CREATE) // with mode 0600, which the files beside it get as well
	if err != nil {
		return err
	}
	file.Close()
	query := url.Values{"_txlock": {"immediate"}, "_pragma": {
		"busy_timeout(10000)", "synchronous(normal)", "foreign_keys(on)", "secure_delete(on)",
	}}
	if a.db, err = sql.Open("sqlite", (&url.URL{Scheme: "file", Path: path, RawQuery: query.Encode()}).String()); err != nil {
		return err
	}
	a.db.SetMaxOpenConns(1) // one writes at a time, and the others wait here
	have, err := versionOf(a.db)
	if have == 0 && err == nil { // on a full disk nothing can be made, but what is there can be read
		// Both are kept in the file, and the first is of a database that is empty.
		if _, err := a.db.ExecContext(context.Background(), "PRAGMA auto_vacuum = incremental; PRAGMA journal_mode = wal"); err != nil {
			return err
		}
		err = a.inTransaction(context.Background(), func(tx *sql.Tx) error {
			if have, err := versionOf(tx); have != 0 || err != nil { // another process was quicker
				return err
			}
			_, err := tx.Exec(tables)
			return err
		})
	}
	if err == nil && have > version {
		err = fmt.Errorf("they are of a later version of nexus (%d, this one knows %d)", have, version)
	}
	return err
}

// versionOf is the version of the tables; 0 if there are none.
func versionOf(db querier) (have int, err error) {
	err = db.QueryRowContext(context.Background(), "PRAGMA user_version").Scan(&have)
	return have, err
}

// inTransaction does all of what do does, or nothing.
func (a *Archive) inTransaction(ctx context.Context, do func(*sql.Tx) error) error {
	tx, err := a.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := do(tx); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

// Dir is the directory, absolute.
func (a *Archive) Dir() string { return a.dir }

// Close closes what is open, and gives the directory up.
func (a *Archive) Close() error {
	var errs []error
	if a.db != nil {
		errs = append(errs, a.db.Close())
	}
	if a.lock != nil {
		errs = append(errs, safefile.Release(a.lock))
	}
	return errors.Join(append(errs, a.root.Close())...)
}
