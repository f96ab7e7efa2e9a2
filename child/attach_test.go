package child_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/go-json-experiment/json"
	"github.com/tidwall/gjson"

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
	for name, target := range map[string]string{"link": filepath.Join(outside, "secret"), "up": "../x", "absolute": filepath.Join(dir, "a.txt")} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	tests := []struct {
		name, path string
		answer     string // a refusal begins with "!" and follows the path
	}{
		{"text is inlined", filepath.Join(dir, "a.txt"), "hello\n\n[attached: a.txt]\nalpha\n[end of a.txt]"},
		{"anything else goes by name", filepath.Join(dir, "b.png"), "hello\n\n[attached: b.png, image/png, 5 bytes, at b.png]"},
		{"a missing file", filepath.Join(dir, "none"), "!there is no such file or directory"},
		{"a file in a missing directory", filepath.Join(dir, "none/a"), "!there is no such file or directory"},
		{"a directory", dir, "!is not a regular file"},
		{"a file outside", filepath.Join(outside, "secret"), "!is outside the working directory"},
		{"a link to the outside", filepath.Join(dir, "link"), "!is outside the working directory"},
		{"a link that goes up", filepath.Join(dir, "up"), "!is outside the working directory"},
		{"a link with an absolute target", filepath.Join(dir, "absolute"), "!absolute is a symbolic link with an absolute target, which is not followed"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := options()
				o.Work = at(dir)
				p := start(t, t.Context(), o)
				p.want(`{"type":"ready"}`)
				prompt, err := protocol.AppendCommand(nil, protocol.Prompt{ID: "1", Message: "say hello", Attachments: []protocol.Attachment{{Path: tt.path}}})
				if err != nil {
					t.Fatal(err)
				}
				p.send(string(prompt))
				if why, refused := strings.CutPrefix(tt.answer, "!"); refused {
					line := p.want(`{"type":"error","id":"1"}`)
					if want := "attachment " + tt.path + ": " + why; gjson.Get(line, "message").String() != want {
						t.Errorf("got %s, want %s", line, want)
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
