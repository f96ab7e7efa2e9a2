package main

import (
	"os"
	"path/filepath"
	"testing"
)

// What bounds a call is the flag, or else the configuration, which had no member for it.
func TestToolTime(t *testing.T) {
	home := t.TempDir()
	for name, text := range map[string]string{
		"config.json":   `{"tools":{"timeout_s":0.05}}`,
		"scenario.json": `{"turns":[{"steps":[{"tool":{"name":"sleep","input":{"seconds":0.3}}},{"text":"ok"}]}]}`,
	} {
		if err := os.WriteFile(filepath.Join(home, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		name string
		args []string
		want string
	}{
		{"by config.json", nil, "sleep: not done after 50ms"},
		{"by the flag", []string{"--tool-timeout", "0.1"}, "sleep: not done after 100ms"},
		{"by a longer flag", []string{"--tool-timeout", "100"}, "slept 0.3 s"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			args := append([]string{"--no-session", "--scenario", filepath.Join(home, "scenario.json")}, tt.args...)
			p := startChild(t, home, args...)
			if got := p.result("1", "wait"); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
			p.stdin.Close()
			p.wait()
		})
	}
}
