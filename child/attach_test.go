package child_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/go-json-experiment/json"

	"nexus.internal/protocol"
)

func TestAttachments(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	for path, text := range map[string]string{
		filepath.Join(dir, "a.txt"): "alpha", filepath.Join(dir, "b.png"): "\x89PNG\x00", filepath.Join(outside, "secret"): "secret",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(filepath.Join(outside, "secret"), filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name, path string
		answer     string // "" is a refusal
	}{
		{"text is inlined", filepath.Join(dir, "a.txt"), "hello\n\n[attached: a.txt]\nalpha\n[end of a.txt]"},
		{"anything else goes by name", filepath.Join(dir, "b.png"), "hello\n\n[attached: b.png, image/png, 5 bytes, at b.png]"},
		{"a missing file", filepath.Join(dir, "none"), ""},
		{"a directory", dir, ""},
		{"a file outside", filepath.Join(outside, "secret"), ""},
		{"a link to the outside", filepath.Join(dir, "link"), ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := options()
				o.Cwd = dir
				p := start(t, t.Context(), o)
				p.want(`{"type":"ready"}`)
				prompt, err := protocol.AppendCommand(nil, protocol.Prompt{ID: "1", Message: "say hello", Attachments: []protocol.Attachment{{Path: tt.path}}})
				if err != nil {
					t.Fatal(err)
				}
				p.send(string(prompt))
				if tt.answer == "" {
					line := p.want(`{"type":"error","id":"1"}`)
					if strings.Contains(line, `"secret"`) || !strings.Contains(line, tt.path) {
						t.Errorf("got %s", line)
					}
				} else {
					want, err := json.Marshal(tt.answer)
					if err != nil {
						t.Fatal(err)
					}
					p.want(`{"event":{"type":"text_delta","delta":` + string(want) + `}}`)
				}
				p.want(`{"type":"agent_end"}`)
				p.want(`{"type":"response","id":"1"}`)
				p.stdin.Close()
				if err := <-p.done; err != nil {
					t.Error(err)
				}
			})
		})
	}
}
