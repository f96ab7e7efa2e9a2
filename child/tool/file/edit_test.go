package file_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"nexus.internal/child/tool"
)

const twoFuncs = "func a() {\n\treturn 1\n}\n\nfunc b() {\n\treturn 1\n}\n"

func TestEdit(t *testing.T) {
	for _, tt := range []struct {
		name           string
		content        string
		old, text      string
		all            bool
		want, becoming string // becoming is "" where nothing changes
	}{
		{
			"once", twoFuncs, "func b() {\n\treturn 1", "func b() {\n\treturn 2", false,
			"edited f: replaced 1 place, in line 5", "func a() {\n\treturn 1\n}\n\nfunc b() {\n\treturn 2\n}\n",
		},
		{"nothing instead", "one two three", " two", "", false, "edited f: replaced 1 place, in line 1", "one three"},
		{"wherever it is", twoFuncs, "return 1", "return 22", true, "edited f: replaced 2 places, in lines 2 and 6", strings.ReplaceAll(twoFuncs, "1", "22")},
		{"many places", strings.Repeat("x\n", 12), "x", "y", true, "edited f: replaced 12 places, in lines 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 and more", strings.Repeat("y\n", 12)},
		{"not unique", twoFuncs, "\treturn 1\n", "x", false, "!edit f: old_text is there 2 times, in lines 2 and 6: put more of the text around it into it, or set replace_all", ""},
		{"overlapping", "baaab", "aa", "x", false, "!edit f: old_text is there 2 times, in line 1: put more of the text around it into it, or set replace_all", ""},
		{"not overlapping", "caab", "aa", "x", false, "edited f: replaced 1 place, in line 1", "cxb"},
		{"CRLF", "a\r\nb\r\nc\r\n", "a\nb\n", "x\ny\nz\n", false, "edited f: replaced 1 place, in line 1", "x\r\ny\r\nz\r\nc\r\n"},
		{"CRLF in both", "a\r\nb\r\nc\r\n", "a\r\nb\r\n", "x\r\ny\n", false, "edited f: replaced 1 place, in line 1", "x\r\ny\r\nc\r\n"},
		{"CRLF asked of LF", "a\nb\nc\n", "a\r\nb\r\n", "x\r\n", false, "edited f: replaced 1 place, in line 1", "x\nc\n"},
		{"each line's own ending", "a\r\nb\na\nb\r\n", "a", "1\n2", true, "edited f: replaced 2 places, in lines 1 and 3", "1\r\n2\r\nb\n1\n2\nb\r\n"},
		{"last line without an end", "a\r\nb", "b", "b\nc", false, "edited f: replaced 1 place, in line 2", "a\r\nb\r\nc"},
		{"only ends", "a\r\nb\r\n", "a\r\n", "a\n", false, "!edit f: that changes nothing: line endings stay as they are", ""},
		{"mark", "\uFEFFa\r\nb\r\n", "a\nb", "c\nd", false, "edited f: replaced 1 place, in line 1", "\uFEFFc\r\nd\r\n"},
		{"mark in both", "\uFEFFone\n", "\uFEFFone", "\uFEFFtwo", false, "edited f: replaced 1 place, in line 1", "\uFEFFtwo\n"},
		{"mark goes in vain", "\uFEFFone\n", "\uFEFF", "", false, "!edit f: old_text is nothing but a byte order mark, which stays as it is", ""},
		{"bytes that are no text stay", strings.Repeat("x", 9000) + "\xff\xfe one", "one", "two", false, "edited f: replaced 1 place, in line 1", strings.Repeat("x", 9000) + "\xff\xfe two"},
		{"empty old", "a", "", "x", false, `!member "old_text" is empty; write_file makes a file`, ""},
		{"same", "a", "a", "a", false, `!member "new_text" is the same as old_text`, ""},
		{
			"other indentation", twoFuncs, "    return 1\n}", "x", false,
			`!edit f: old_text is not there; line 2 has other white space: it is "\treturn 1", not "    return 1"`, "",
		},
		{
			"nearest line", "alpha\nfunc compute(a, b int) int {\nomega\n", "func compute(a int, b int) {", "x", false,
			`!edit f: old_text is not there; the nearest to its first line is line 2: "func compute(a, b int) int {"`, "",
		},
		{
			"another second line", twoFuncs, "func b() {\n\treturn 7\n", "x", false,
			`!edit f: old_text is not there; its first 1 line is from line 5 on, but then comes "\treturn 1", not "\treturn 7"`, "",
		},
		{
			"beyond the end", "a\nb", "a\nb\nc", "x", false,
			"!edit f: old_text is not there; its first 2 lines are from line 1 on, but there the file ends", "",
		},
		{
			"empty lines around", "a\nb\nc\n", "\n\nb\n", "x", false,
			"!edit f: old_text is not there; its lines are, from line 2 on, but not the empty lines or line ends around them", "",
		},
		{"like nothing", "alpha\nbeta\n", "12345", "x", false, `!edit f: old_text is not there, nor any line like its first, "12345"`, ""},
		{"empty file", "", "12345", "x", false, `!edit f: old_text is not there, nor any line like its first, "12345"`, ""},
		{"not a text", "\x00\x01", "a", "x", false, "!edit f: it is not a text file (2 bytes)", ""},
		{"UTF-16", "\xff\xfea\x00b\x00", "a", "x", false, "edited f: replaced 1 place, in line 1", "\xff\xfex\x00b\x00"},
		{"grown", strings.Repeat("x", 1<<20), "x", strings.Repeat("y", 17), true, "!edit f: it would have more than 16777216 bytes", ""},
		{"too large", strings.Repeat("x", 16<<20+1), "x", "y", true, "!edit f: it has more than the 16777216 bytes that can be edited", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRoom(t)
			path := filepath.Join(r.dir, "f")
			r.put("f", tt.content)
			r.must(os.Chmod(path, 0o751))
			r.want(tt.want, "edit_file", "path", "f", "old_text", tt.old, "new_text", tt.text, "replace_all", tt.all)
			want := tt.becoming
			if strings.HasPrefix(tt.want, "!") {
				want = tt.content
			}
			if got := r.get(path); got != want {
				t.Errorf("the file is now %.100q, want %.100q", got, want)
			}
			if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o751 {
				t.Errorf("mode %v, error %v", info.Mode(), err)
			}
			if entries, err := os.ReadDir(r.dir); err != nil || len(entries) != 1 {
				t.Errorf("there is now %v, error %v", entries, err)
			}
		})
	}
}

// Several edits are made in their order, all of them or none.
func TestEdits(t *testing.T) {
	type edit map[string]any
	for name, tt := range map[string]struct {
		edits          []edit
		want, becoming string // becoming is "" where nothing changes
	}{
		"two": {
			[]edit{{"old_text": "a()", "new_text": "first()"}, {"old_text": "return 1", "new_text": "return 2", "replace_all": true}},
			"edited f: replaced 1 place, in line 1; replaced 2 places, in lines 2 and 6", "func first() {\n\treturn 2\n}\n\nfunc b() {\n\treturn 2\n}\n",
		},
		"of what another one made": {
			[]edit{{"old_text": "func a", "new_text": "func c"}, {"old_text": "func c", "new_text": "func d"}},
			"edited f: replaced 1 place, in line 1; replaced 1 place, in line 1", strings.Replace(twoFuncs, "func a", "func d", 1),
		},
		"the second fails": {
			[]edit{{"old_text": "func a", "new_text": "func c"}, {"old_text": "return 1", "new_text": "x"}},
			"!edit f: edits[1] (nothing was changed): old_text is there 2 times, in lines 2 and 6: put more of the text around it into it, or set replace_all", "",
		},
		"the second is empty": {[]edit{{"old_text": "func a", "new_text": "func c"}, {"old_text": "", "new_text": "x"}}, `!member "edits[1].old_text" is empty; write_file makes a file`, ""},
		"none":                {[]edit{}, `!member "edits" has 0 edits, want 1 to 100`, ""},
		"too many":            {make([]edit, 101), `!member "edits" has 101 edits, want 1 to 100`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRoom(t)
			path := filepath.Join(r.dir, "f")
			r.put("f", twoFuncs)
			for i := range tt.edits {
				if tt.edits[i] == nil {
					tt.edits[i] = edit{"old_text": "a", "new_text": "b"}
				}
			}
			r.want(tt.want, "edit_file", "path", "f", "edits", tt.edits)
			want := tt.becoming
			if want == "" {
				want = twoFuncs
			}
			if got := r.get(path); got != want {
				t.Errorf("the file is now %q, want %q", got, want)
			}
		})
	}
	r := newRoom(t)
	r.put("f", twoFuncs)
	r.want(`!member "edits" excludes old_text, new_text and replace_all beside it`, "edit_file", "path", "f", "old_text", "a", "edits", []edit{{"old_text": "a", "new_text": "b"}})
	r.want(`!member "old_text" is missing, and so is edits`, "edit_file", "path", "f")
	r.want(`!member "new_text" is missing`, "edit_file", "path", "f", "old_text", "a")
}

func TestEditPaths(t *testing.T) {
	r := newRoom(t)
	edit := func(want, path string) {
		t.Helper()
		r.want(want, "edit_file", "path", path, "old_text", "secret", "new_text", "owned")
	}
	r.put("sub/a", "a secret")
	r.put("locked", "a secret")
	r.must(os.Chmod(filepath.Join(r.dir, "locked"), 0o444))
	r.must(syscall.Mkfifo(filepath.Join(r.dir, "pipe"), 0o666))
	for name, target := range map[string]string{
		"out": r.outside, "file": "../outside/secret.txt", "link": "sub/a", "absolute": filepath.Join(r.dir, "sub/a"),
	} {
		r.must(os.Symlink(target, filepath.Join(r.dir, name)))
	}
	secret := filepath.Join(r.outside, "secret.txt")
	for _, path := range []string{"../outside/secret.txt", secret, "out/secret.txt", "file", "sub/../../outside/secret.txt"} {
		edit("!"+path+" is outside the working directory", path)
	}
	edit("!edit none: there is no such file or directory", "none")
	edit("!edit sub: it is a directory", "sub")
	edit("!edit pipe: it is a named pipe", "pipe")
	edit("!edit locked: it is read-only", "locked")
	edit(`!member "path" is empty`, "")
	if got := r.get(secret); got != "secret" {
		t.Errorf("the secret is now %q", got)
	}
	edit("edited link: replaced 1 place, in line 1", "link")
	edit("!edit absolute: old_text is not there, nor any line like its first, \"secret\"", "absolute")
	if got := r.get(filepath.Join(r.dir, "sub/a")); got != "a owned" {
		t.Errorf("the link's target is now %q", got)
	}
	absolute := filepath.Join(r.dir, "sub/a")
	r.put("sub/a", "secret")
	edit("edited "+absolute+": replaced 1 place, in line 1", absolute)
}

// A model edits one file several times in one go. None of that may be lost.
func TestEditsAtOnce(t *testing.T) {
	r := newRoom(t)
	const edits = 40
	var content, want strings.Builder
	for i := range edits {
		fmt.Fprintf(&content, "<old %d>\n", i)
		fmt.Fprintf(&want, "<new %d>\n", i)
	}
	r.put("f", content.String())
	var all sync.WaitGroup
	for i := range edits {
		all.Go(func() {
			input := fmt.Sprintf(`{"path":"f","old_text":"<old %d>","new_text":"<new %d>"}`, i, i)
			if _, err := r.tools["edit_file"].Run(t.Context(), tool.Call{Input: []byte(input)}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if got := r.get(filepath.Join(r.dir, "f")); got != want.String() {
		t.Errorf("the file is now %s", got)
	}
}

func TestEditAborted(t *testing.T) {
	r := newRoom(t)
	r.put("a", "old")
	ctx, abort := context.WithCancel(t.Context())
	abort()
	if _, err := r.tools["edit_file"].Run(ctx, tool.Call{Input: []byte(`{"path":"a","old_text":"old","new_text":"new"}`)}); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	r.want("a (3 bytes)\n", "list_directory")
	if got := r.get(filepath.Join(r.dir, "a")); got != "old" {
		t.Errorf("the file is now %q", got)
	}
}
