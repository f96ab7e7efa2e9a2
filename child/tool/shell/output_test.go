package shell_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"nexus.internal/child/tool/shell"
)

// Whatever comes in whatever pieces, it is text, bounded, and whole in the file.
func FuzzOutput(f *testing.F) {
	f.Add([]byte("hello\nworld"), 3, 8)
	f.Add([]byte("\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80"), 1, 4)
	f.Add(bytes.Repeat([]byte("\x00\xff"), 100), 7, 20)
	f.Fuzz(func(t *testing.T, data []byte, piece, most int) {
		piece, most = 1+abs(piece)%100, 2+abs(most)%100
		var chunks [][]byte
		for rest := data; len(rest) > 0; {
			n := min(piece, len(rest))
			chunks, rest = append(chunks, rest[:n]), rest[n:]
		}
		dir := filepath.Join(t.TempDir(), "out")
		text, told := shell.Collect(most, dir, chunks)
		if !utf8.ValidString(text) || !utf8.ValidString(told) {
			t.Errorf("no text: %q, %q", text, told)
		}
		if strings.Contains(text, "binary output") {
			return
		}
		files, _ := filepath.Glob(dir + "/*")
		if len(data) <= most/2*2 {
			if whole := strings.TrimSuffix(text, "\n"); len(files) > 0 || whole != strings.TrimSuffix(shown(data), "\n") {
				t.Errorf("%q of %q, files %v", text, data, files)
			}
			return
		}
		if len(files) != 1 {
			t.Fatalf("files %v", files)
		}
		if kept, err := os.ReadFile(files[0]); !bytes.Equal(kept, data) || err != nil {
			t.Errorf("kept %q of %q, %v", kept, data, err)
		}
		if len(text) > 3*most+len(files[0])+100 { // U+FFFD has three bytes
			t.Errorf("%d bytes are shown, want %d", len(text), most)
		}
	})
}

func shown(b []byte) string {
	return strings.ReplaceAll(strings.ToValidUTF8(string(b), "\uFFFD"), "\x00", "\u2400")
}

func abs(n int) int {
	if n < 0 {
		return -(n + 1)
	}
	return n
}
