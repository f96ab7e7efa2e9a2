package sessions_test

import (
	"os"
	"path/filepath"
	"testing"

	"nexus.internal/bridge/sessions"
)

func TestCatalogue(t *testing.T) {
	home := t.TempDir()
	c := sessions.New(home, nil)
	for _, id := range []string{"named", ".1", "empty", "folder"} {
		if err := os.MkdirAll(c.Dir(id), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for id, text := range map[string]string{"named": "{}\n", ".1": "{}\n", "empty": ""} {
		if err := os.WriteFile(c.Path(id), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(c.Path("folder"), 0o700); err != nil {
		t.Fatal(err)
	}
	// A file that no id may reach.
	if err := os.WriteFile(filepath.Join(home, "out.jsonl"), []byte("{}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		id   string
		want bool
	}{
		{"named", true},
		{"nobody", false},
		{".1", false},
		{"empty", false},
		{"folder", false},
		{"../out", false},
		{"", false},
		{"named/", false},
	} {
		if got := c.Exists(test.id); got != test.want {
			t.Errorf("Exists(%q) = %v, want %v", test.id, got, test.want)
		}
	}
	if got, want := c.Path(".1"), filepath.Join(home, "run", "temp", ".1.jsonl"); got != want {
		t.Errorf("got path %s, want %s", got, want)
	}
	images := filepath.Join(filepath.Dir(c.Path(".1")), ".1.files")
	if err := os.Mkdir(images, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{filepath.Join(images, "image"), beside(c, ".1", ".records")} {
		if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(t, beside(c, ".1", ".home/.cache/npm/x"), "x")
	for _, id := range []string{"named", ".1", ".1", ".2", "../out"} {
		if err := c.RemoveTemp(id); err != nil {
			t.Errorf("RemoveTemp(%q): %v", id, err)
		}
	}
	if !c.Exists("named") {
		t.Error("a named session was removed")
	}
	for _, path := range []string{c.Path(".1"), images, beside(c, ".1", ".records"), beside(c, ".1", ".home")} {
		if _, err := os.Lstat(path); err == nil {
			t.Errorf("%s is still there", filepath.Base(path))
		}
	}
}

// A new server begins without the temporary sessions of one that was killed.
func TestTidy(t *testing.T) {
	home := t.TempDir()
	c := sessions.New(home, nil)
	for _, id := range []string{".t", "named"} {
		if err := os.MkdirAll(c.Dir(id), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(c.Path(id), []byte("{}\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if err := sessions.Tidy(home); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(c.Path(".t")); err == nil {
		t.Error("a temporary session is still there")
	}
	if !c.Exists("named") {
		t.Error("a named session was removed")
	}
}
