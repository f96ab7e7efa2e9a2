package file_test

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/google/go-cmp/cmp"

	"nexus.internal/child/tool"
	"nexus.internal/child/tool/file"
	"nexus.internal/protocol"
)

// utf16Text is a text in UTF-16 with its byte order mark.
func utf16Text(text string, big bool) string {
	var b strings.Builder
	for _, unit := range append([]uint16{0xfeff}, utf16.Encode([]rune(text))...) {
		if big {
			b.Write([]byte{byte(unit >> 8), byte(unit)})
		} else {
			b.Write([]byte{byte(unit), byte(unit >> 8)})
		}
	}
	return b.String()
}

// stored are files in several encodings that hold "Größe 1\r\nzwei €\r\n", or as
// much of it as they can.
var stored = map[string]string{
	"utf-8":        "Größe 1\r\nzwei €\r\n",
	"marked":       "\ufeffGröße 1\r\nzwei €\r\n",
	"utf-16le":     utf16Text("Größe 1\r\nzwei €\r\n", false),
	"utf-16be":     utf16Text("Größe 1\r\nzwei €\r\n", true),
	"windows-1252": "Gr\xf6\xdfe 1\r\nzwei \x80\r\n",
}

// A text is read, searched and edited in UTF-8, whatever it is stored in, and
// stays in that.
func TestEncodings(t *testing.T) {
	for name, content := range stored {
		t.Run(name, func(t *testing.T) {
			r := newRoom(t)
			r.put("f", content)
			r.want("Größe 1\r\nzwei €\r\n", "read_file", "path", "f")
			r.want("zwei €\r\n", "read_file", "path", "f", "offset", 2)
			r.want("f:2:zwei €\n", "search_text", "pattern", "^zwei €$")
			r.want("f:1:Größe 1\n", "search_text", "pattern", "^Größe")
			r.want("edited f: replaced 1 place, in line 1", "edit_file", "path", "f", "old_text", "Größe 1\nzwei", "new_text", "Maß\nüber")
			r.want("edited f: replaced 1 place, in line 1", "edit_file", "path", "f", "old_text", "Maß\nüber", "new_text", "Größe 1\nzwei")
			if got := r.get(filepath.Join(r.dir, "f")); got != content {
				t.Errorf("there and back is %q, want %q", got, content)
			}
		})
	}
}

// What replaces a text is stored as that was.
func TestWriteAsBefore(t *testing.T) {
	for _, tt := range []struct{ name, before, text, want, says string }{
		{"LF", "a\n", "x\ny\n", "x\ny\n", ""},
		{"CRLF", stored["utf-8"], "x\ny\n", "x\r\ny\r\n", " (CRLF line endings kept)"},
		{"CRLF, asked for by itself", stored["utf-8"], "x\r\ny\n", "x\r\ny\n", ""},
		{"both endings", "a\r\nb\n", "x\ny\n", "x\ny\n", ""},
		{"no ending", "a", "x\ny\n", "x\ny\n", ""},
		{"a mark", "\ufeffa\n", "x\n", "\ufeffx\n", ""},
		{"a mark that is written, too", "\ufeffa\n", "\ufeffx\n", "\ufeffx\n", ""},
		{"UTF-16", stored["utf-16le"], "ä👋\n", utf16Text("ä👋\r\n", false), " (CRLF line endings kept, kept in UTF-16)"},
		{"UTF-16 with its large end first", utf16Text("a", true), "b", utf16Text("b", true), " (kept in UTF-16)"},
		{"Windows-1252", "Gr\xf6\xdfe", "Maß €", "Ma\xdf \x80", " (kept in Windows-1252)"},
		{"not in Windows-1252", "Gr\xf6\xdfe", "👋", "👋", " (it was in Windows-1252 and is in UTF-8 now)"},
		{"binary", "\x00\x01\r\n", "x\n", "x\n", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRoom(t)
			r.put("f", tt.before)
			text, err := r.run("write_file", "path", "f", "content", tt.text)
			r.must(err)
			if got := r.get(filepath.Join(r.dir, "f")); got != tt.want || !strings.HasSuffix(text, "to f"+tt.says) {
				t.Errorf("it says %q and holds %q, want %q", text, got, tt.want)
			}
		})
	}
}

func TestEncodingFaults(t *testing.T) {
	r := newRoom(t)
	r.put("latin", "Gr\xf6\xdfe")
	r.want("!edit latin: the file is in Windows-1252, which has no '👋'", "edit_file", "path", "latin", "old_text", "Größe", "new_text", "👋")
	r.put("lone", "\xff\xfe\x00\xd8a\x00")
	r.want("\ufffda", "read_file", "path", "lone")
	r.want("!edit lone: it is UTF-16, and damaged: not all of it could be put back", "edit_file", "path", "lone", "old_text", "a", "new_text", "b")
	r.put("odd", "\xff\xfea\x00b")
	r.want("a\ufffd", "read_file", "path", "odd")
	r.put("utf-32", "\xff\xfe\x00\x00a\x00\x00\x00")
	r.want("!read utf-32: it is not a text file (8 bytes)", "read_file", "path", "utf-32")
	r.put("noise", strings.Repeat("\xc3\x28\xf0", 100))
	r.want("!read noise: it is not a text file (300 bytes)", "read_file", "path", "noise")
}

// A text in UTF-16 or Windows-1252 can be read piece by piece like any other,
// and is the same however its bytes come.
func FuzzEncodings(f *testing.F) {
	for _, content := range stored {
		f.Add([]byte(content))
	}
	f.Add([]byte("\xff\xfe\x3d\xd8\x4b\xdc"))
	f.Fuzz(func(t *testing.T, content []byte) {
		text, again, ok := file.Recode(content)
		if !ok {
			return
		}
		if !slices.Equal(again, content) && !strings.ContainsRune(text, '\ufffd') {
			t.Errorf("%q is %q, which is %q", content, text, again)
		}
	})
}

const png = "\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR"

// album is a function as [tool.Images].
type album func(data []byte, mime, name string) (protocol.Image, error)

func (a album) Put(data []byte, mime, name string) (protocol.Image, error) {
	return a(data, mime, name)
}

// An image is shown to the model where images can be kept, and refused as what
// it is where not.
func TestImages(t *testing.T) {
	r := newRoom(t)
	r.put("a.png", png)
	r.put("large.gif", "GIF89a"+strings.Repeat("x", 5<<20))
	r.want("!read a.png: it is not a text file (16 bytes)", "read_file", "path", "a.png")
	want := protocol.Image{Name: "a.png", Mime: "image/png", Size: 16, SHA256: "00"}
	var failure error
	for _, tl := range file.Tools(file.Options{
		Spaces: spaces{Cwd: r.dir},
		Images: album(func(data []byte, mime, name string) (protocol.Image, error) {
			if string(data) != png || mime != "" || name != "a.png" {
				t.Errorf("kept %q as %s %s", data, mime, name)
			}
			return want, failure
		}),
	}) {
		r.tools[tl.Spec().Name] = tl
	}
	got, err := r.tools["read_file"].Run(t.Context(), tool.Call{Input: []byte(`{"path":"a.png"}`)})
	r.must(err)
	if diff := cmp.Diff(tool.Result{Text: "[the image a.png, image/png, 16 bytes]", Images: []protocol.Image{want}}, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	r.want("!read large.gif: it is an image of 5242886 bytes, at most 5242880 are taken", "read_file", "path", "large.gif")
	failure = errors.New("no room")
	r.want("!read a.png: no room", "read_file", "path", "a.png")
}

// What a call would touch is known before it runs, and what it changed after.
func TestScope(t *testing.T) {
	r := newRoom(t)
	r.put("a", "text")
	for _, tt := range []struct {
		name, input, path, summary string
		action                     protocol.Action
	}{
		{"read_file", `{"path":"a"}`, "a", "read a", protocol.ActionRead},
		{"list_directory", `{}`, ".", "list .", protocol.ActionRead},
		{"write_file", `{"path":"a","content":"1234"}`, "a", "write a (4 bytes)", protocol.ActionWrite},
		{"edit_file", `{"path":"a","old_text":"2","new_text":"3"}`, "a", "edit a", protocol.ActionWrite},
		{"glob", `{"pattern":"*","path":"."}`, ".", "find * in .", protocol.ActionRead},
		{"search_text", `{"pattern":"x"}`, ".", "search . for x", protocol.ActionRead},
	} {
		tl := r.tools[tt.name].(tool.Scoped)
		got, err := tl.Scope([]byte(tt.input))
		want := tool.Scope{Action: tt.action, Paths: []string{tt.path}, Summary: tt.summary}
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%s: %v, -want +got\n%s", tt.name, err, diff)
		}
		if wrong, err := tl.Scope([]byte(`{"a":1}`)); err == nil || wrong.Action != tt.action {
			t.Errorf("%s: a wrong input is %+v, %v", tt.name, wrong, err)
		}
		result, err := tl.Run(t.Context(), tool.Call{Input: []byte(tt.input)})
		r.must(err)
		var changed []string
		if tt.action == protocol.ActionWrite {
			changed = []string{filepath.Join(r.dir, "a")}
		}
		if diff := cmp.Diff(changed, result.Changed); diff != "" {
			t.Errorf("%s: -want +got\n%s", tt.name, diff)
		}
	}
}

func TestOpen(t *testing.T) {
	r := newRoom(t)
	r.put("a", "text")
	space := file.Space{Cwd: r.dir}
	f, info, err := file.Open(space, filepath.Join(r.dir, "a"))
	r.must(err)
	defer f.Close()
	if content, err := io.ReadAll(f); string(content) != "text" || info.Size() != 4 {
		t.Errorf("%q, %v", content, err)
	}
	for path, want := range map[string]string{
		r.outside + "/secret.txt": r.outside + "/secret.txt is outside the working directory",
		".":                       "read .: it is a directory",
	} {
		if f, _, err := file.Open(space, path); err == nil || err.Error() != want {
			f.Close()
			t.Errorf("%s: %v, want %s", path, err, want)
		}
	}
}

// A space may have several places, files among them, and some that are not
// there yet.
func TestReach(t *testing.T) {
	r := newRoom(t)
	top := filepath.Dir(r.dir)
	for _, dir := range []string{"more/sub", "other"} {
		r.must(os.MkdirAll(filepath.Join(top, dir), 0o777))
	}
	r.must(os.WriteFile(filepath.Join(top, "more/sub/a.txt"), []byte("more"), 0o666))
	r.must(os.WriteFile(filepath.Join(top, "other/a.txt"), []byte("other"), 0o666))
	r.open(file.Space{
		Cwd: r.dir, AllowedPaths: []string{filepath.Join(top, "more"), filepath.Join(top, "other/a.txt"), filepath.Join(top, "made")},
		Checker: checker(func(path, asked string, _ bool) error {
			if strings.HasPrefix(path, filepath.Join(top, "other")) && path != filepath.Join(top, "other/a.txt") {
				return errors.New("no")
			}
			return nil
		}),
	})
	r.want("more", "read_file", "path", "../more/sub/a.txt")
	r.want("other", "read_file", "path", filepath.Join(top, "other/a.txt"))
	r.want("!no", "read_file", "path", filepath.Join(top, "other/b.txt"))
	r.want("!no", "list_directory", "path", filepath.Join(top, "other"))
	r.want(filepath.Join(top, "more/sub/a.txt")+":1:more\n", "search_text", "pattern", ".", "path", "../more")
	made := filepath.Join(top, "made/x/a.txt")
	r.want("wrote 1 bytes to "+made+" (a new file)", "write_file", "path", made, "content", "1")
	r.want("!"+top+"/none is outside the working directory", "write_file", "path", top+"/none", "content", "1")
}
