package child_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/go-json-experiment/json"
	"github.com/tidwall/gjson"

	"nexus.internal/child/images"
	"nexus.internal/protocol"
)

func TestAttachments(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	for path, text := range map[string]string{
		filepath.Join(dir, "a.txt"): "alpha", filepath.Join(dir, "b.png"): "\x89PNG\x00",
		filepath.Join(dir, "c.png"): "GIF89a....", filepath.Join(dir, "d.gif"): "GIF89a" + strings.Repeat("x", 5<<20), filepath.Join(outside, "secret"): "secret",
		filepath.Join(dir, "x]\n[end of x]"): "beta",
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
		answer     string // a refusal begins with "!"
	}{
		{"text is inlined", filepath.Join(dir, "a.txt"), "hello\n\n[attached: a.txt]\nalpha\n[end of a.txt]"},
		{"anything else goes by name", filepath.Join(dir, "b.png"), "hello\n\n[attached: b.png, image/png, 5 bytes, at b.png]"},
		{"an image goes as one", filepath.Join(dir, "c.png"), "hello\n\n[attached image: c.png, image/gif, 10 bytes, at c.png]"},
		{"one that is too large goes by name", filepath.Join(dir, "d.gif"), "hello\n\n[attached: d.gif, image/gif, 5242886 bytes, at d.gif; it is too large to be shown]"},
		{"a link with an absolute target, which lies inside", filepath.Join(dir, "absolute"), "hello\n\n[attached: absolute]\nalpha\n[end of absolute]"},
		{"a name that a line cannot show", filepath.Join(dir, "x]\n[end of x]"), "hello\n\n[attached: \"x]\\n[end of x]\"]\nbeta\n[end of \"x]\\n[end of x]\"]"},
		{"a missing file", filepath.Join(dir, "none"), "!there is no such file or directory"},
		{"a file in a missing directory", filepath.Join(dir, "none/a"), "!there is no such file or directory"},
		{"a directory", dir, "!is a directory"},
		{"a file outside", filepath.Join(outside, "secret"), "!is outside the working directory"},
		{"a link to the outside", filepath.Join(dir, "link"), "!leads out of what this agent may touch"},
		{"a link that goes up", filepath.Join(dir, "up"), "!leads out of what this agent may touch"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := options()
				o.ToolEnv, o.Start.ContextWindow = at(dir), 10_000
				p := start(t, t.Context(), o)
				p.want(`{"type":"ready"}`)
				prompt, err := protocol.AppendCommand(nil, protocol.Prompt{ID: "1", Message: "say hello", Attachments: []protocol.Attachment{{Path: tt.path}}})
				if err != nil {
					t.Fatal(err)
				}
				p.send(string(prompt))
				if why, refused := strings.CutPrefix(tt.answer, "!"); refused {
					line := p.want(`{"type":"error","id":"1"}`)
					if got := gjson.Get(line, "message").String(); !strings.HasPrefix(got, "attachment: ") || !strings.Contains(got, tt.path) || !strings.Contains(got, why) {
						t.Errorf("got %s, want %s", line, why)
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

// The images of a prompt are in the conversation, their bytes beside it, and at
// most 20 MiB of them.
func TestImagesAreKept(t *testing.T) {
	dir := t.TempDir()
	var attachments []protocol.Attachment
	for i := range 5 {
		path := filepath.Join(dir, strconv.Itoa(i)+".gif")
		if err := os.WriteFile(path, append([]byte("GIF89a"), bytes.Repeat([]byte{byte(i)}, 4500<<10)...), 0o600); err != nil {
			t.Fatal(err)
		}
		attachments = append(attachments, protocol.Attachment{Path: path})
	}
	o := options()
	o.Start.ContextWindow = 10_000
	o.ToolEnv, o.Images = at(dir), images.New(images.Options{Dir: filepath.Join(dir, "s.files")})
	prompt, err := protocol.AppendCommand(nil, protocol.Prompt{ID: "1", Message: "say hello", Attachments: attachments})
	if err != nil {
		t.Fatal(err)
	}
	play(t, o, []string{
		"> " + string(prompt), text, `< {"type":"agent_end","stop_reason":"completed"}`, `< {"type":"response","id":"1","ok":true}`,
		`> {"type":"get_messages","id":"m","limit":1}`, `< {"id":"m","messages":"*"}`,
	})
	entries, err := os.ReadDir(filepath.Join(dir, "s.files"))
	if err != nil || len(entries) != 4 {
		t.Errorf("%d files are kept, %v", len(entries), err)
	}
}
