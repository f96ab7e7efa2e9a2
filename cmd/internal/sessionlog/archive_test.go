package sessionlog_test

import (
	"context"
	"database/sql"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"nexus.internal/cmd/internal/sessionlog"
)

// A directory in which somebody else could put files gets no logs.
func TestRefusedDirectories(t *testing.T) {
	for name, c := range map[string]struct {
		make func(path string) error
		want string
	}{
		"a link": {func(path string) error {
			return errors.Join(os.Mkdir(path+"-real", 0o700), os.Symlink(path+"-real", path))
		}, "is a symbolic link"},
		"a link to nothing": {func(path string) error { return os.Symlink("nowhere", path) }, "is a symbolic link"},
		"a file":            {func(path string) error { return os.WriteFile(path, nil, 0o600) }, "is not a directory"},
		"open to others":    {func(path string) error { return errors.Join(os.Mkdir(path, 0o700), os.Chmod(path, 0o770)) }, "has mode 0770: others could put files there (chmod 700 "},
		"another user's": {func(path string) error {
			if os.Getuid() != 0 {
				return errors.Join(os.Mkdir(path, 0o755), os.Chmod(path, 0o777)) // there is nobody to give it to
			}
			return errors.Join(os.Mkdir(path, 0o700), os.Chown(path, 65534, 65534))
		}, map[bool]string{true: "is another user's: choose another directory", false: "has mode 0777"}[os.Getuid() == 0]},
		"a link for the database": {func(path string) error {
			return errors.Join(os.Mkdir(path, 0o700), os.Symlink("/dev/null", filepath.Join(path, "logs.db")))
		}, "logs.db is not a file of yours"},
		"a link beside the database": {func(path string) error {
			return errors.Join(os.Mkdir(path, 0o700), os.Symlink("elsewhere", filepath.Join(path, "logs.db-wal")))
		}, "logs.db-wal is not a file of yours"},
		"no database": {func(path string) error {
			return errors.Join(os.Mkdir(path, 0o700), os.WriteFile(filepath.Join(path, "logs.db"), []byte(strings.Repeat("no database ", 100)), 0o600))
		}, "file is not a database"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "logs")
			if err := c.make(path); err != nil {
				t.Fatal(err)
			}
			a, err := sessionlog.Create(path)
			if err == nil {
				a.Close()
			}
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

// One server logs in a directory, and others read it meanwhile.
func TestOneServer(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "logs #1?")
	if _, err := sessionlog.Open(dir); !errors.Is(err, sessionlog.ErrNone) {
		t.Errorf("before there are any: %v", err)
	}
	a, err := sessionlog.Create(dir)
	if err != nil {
		t.Fatal(err)
	}
	if other, err := sessionlog.Create(dir); err == nil || !strings.Contains(err.Error(), "another nexus server logs sessions in "+dir) {
		t.Errorf("a second server: %v, %v", other, err)
	}
	reader, err := sessionlog.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if all, err := reader.List(sessionlog.Filter{}); err != nil || len(all) != 0 {
		t.Errorf("an empty log has %v, %v", all, err)
	}
	if err := errors.Join(reader.Close(), a.Close()); err != nil {
		t.Error(err)
	}
	for _, name := range []string{"logs.db", "lock"} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
	if a, err = sessionlog.Create(dir); err != nil {
		t.Fatalf("the next server: %v", err)
	}
	a.Close()
	// A program that is too old says so, and changes nothing.
	db, err := sql.Open("sqlite", (&url.URL{Scheme: "file", Path: filepath.Join(dir, "logs.db")}).String())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.ExecContext(t.Context(), "PRAGMA user_version = 2"); err != nil {
		t.Fatal(err)
	}
	db.Close()
	if _, err := sessionlog.Create(dir); err == nil || !strings.Contains(err.Error(), "of a later version of nexus (2, this one knows 1)") {
		t.Errorf("tables of a later version: %v", err)
	}
}

// Nothing in what is searched for means anything to the database.
func TestSearchTakesAnyWords(t *testing.T) {
	a, err := sessionlog.Create(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	for _, words := range [][]string{{`"`}, {"AND"}, {"a", "OR", "NOT"}, {"text:x"}, {"*"}, {"("}, {"a*b*"}, {`'; DROP TABLE entries`}, {""}} {
		if found, err := a.Search(context.Background(), words, sessionlog.Filter{}, 1); err != nil || len(found) != 0 {
			t.Errorf("%q: %v, %v", words, found, err)
		}
	}
}
