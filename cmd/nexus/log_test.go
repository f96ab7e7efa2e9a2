package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"nexus.internal/cmd/internal/config"
)

// A log takes the place of no other file of the home, by whatever name it is given.
func TestLogFileOfHome(t *testing.T) {
	dir := t.TempDir()
	home := filepath.Join(dir, "home")
	for _, made := range []string{"home/logs", "home/sessions", "home/run"} {
		if err := os.MkdirAll(filepath.Join(dir, made), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(home, filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	for file, refused := range map[string]bool{
		"home/config.json": true, "link/config.json": true, "home/server.key": true, "home/sessions/worker.jsonl": true, "home/run/lock": true,
		"home/server.log": false, "home/logs/server": false, "link/logs/server-1": false, "nexus": false, "config.json": false,
	} {
		for _, path := range []string{file, filepath.Join(dir, file)} {
			o := logOptions{file: path}
			lines, _, err := o.open(io.Discard, config.Home(home))
			if err == nil {
				lines.Flush()
			}
			if got := err != nil && strings.Contains(err.Error(), "in the home, which has other files, a log is in logs/, or its name ends in .log"); got != refused || err != nil && !refused {
				t.Errorf("--log-file %s: %v", path, err)
			}
			if _, err := os.Stat(o.file); (err != nil) != refused {
				t.Errorf("--log-file %s: there is a file, or none: %v", path, err)
			}
		}
	}
}
