package file_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"nexus.internal/child/tool"
)

// FuzzInput: whatever a model calls a tool with, the tool returns, and what lies
// beside the working directory is as it was and is not told.
func FuzzInput(f *testing.F) {
	tools := []string{"read_file", "list_directory", "write_file", "edit_file", "glob", "search_text", "apply_patch"}
	for i, input := range []string{
		`{"path":"a.txt","offset":1,"limit":1}`, `{"path":"../outside"}`, `{"path":"../outside/secret.txt","content":"x"}`,
		`{"path":"link/secret.txt","old_text":"secret","new_text":"x","replace_all":true}`, `{"pattern":"../**","path":"link"}`,
		`{"pattern":"(a+)+$","glob":"**","ignore_case":true,"literal":false,"max_results":1}`,
	} {
		f.Add(i, input)
	}
	f.Add(0, `{"path":"/etc/hostname"}`)
	f.Add(2, `{"path":"sub/../../outside/new","content":""}`)
	f.Add(3, `{"path":"a.txt","old_text":"","new_text":""}`)
	f.Add(5, `{"pattern":"[","path":null}`)
	for _, patch := range []string{
		`*** Begin Patch\n*** Add File: link/x\n+x\n*** Update File: a.txt\n@@ one\n two\n+x\n*** Delete File: ../outside/secret.txt\n*** End Patch`,
		`*** Begin Patch\n*** Update File: a.txt\n*** Move to: sub/b\n-one\n+x\n*** End of File\n*** End Patch`,
		`diff --git a/a.txt b/../outside/new\nrename from a.txt\nrename to ../outside/new\n--- a/a.txt\n+++ b/x\n@@ -1,2 +1 @@\n-one\n two\n\\ No newline\n`,
	} {
		f.Add(6, `{"patch":"`+patch+`"}`)
	}
	f.Fuzz(func(t *testing.T, which int, input string) {
		r := newRoom(t)
		r.put("a.txt", "one\r\ntwo\n\xff")
		r.must(os.Symlink("../outside", filepath.Join(r.dir, "link")))
		name := tools[uint(which)%uint(len(tools))]
		result, err := r.tools[name].Run(t.Context(), tool.Call{Input: jsontext.Value(input)})
		if err == nil && strings.Contains(result.Text, "secret") && !strings.Contains(input, "secret") {
			t.Errorf("%s %s tells %q", name, input, result.Text)
		}
		entries, err := os.ReadDir(r.outside)
		r.must(err)
		kept, err := os.ReadFile(filepath.Join(r.outside, "secret.txt"))
		if err != nil || string(kept) != "secret" || len(entries) != 1 {
			t.Errorf("%s %s reached beyond the working directory: %q, %v, %d entries", name, input, kept, err, len(entries))
		}
	})
}

// FuzzEdit: an edit replaces the text where it is, and nothing else; one that is
// refused changes nothing.
func FuzzEdit(f *testing.F) {
	f.Add("one two three", "two", "2", false)
	f.Add("aaa", "a", "b", true)
	f.Add("aaa", "aa", "b", false)
	f.Add("a\nb\n", "a\nb", "", false)
	f.Fuzz(func(t *testing.T, content, old, text string, all bool) {
		if strings.ContainsAny(content+old+text, "\r\uFEFF") {
			return // line endings and marks have rules of their own: see TestEdit
		}
		if !utf8.ValidString(content) && strings.ContainsFunc(old+text, func(r rune) bool { return r >= utf8.RuneSelf }) {
			return // it is written as the file is, which is not UTF-8: see TestEncodings
		}
		r := newRoom(t)
		r.put("f", content)
		input, err := json.Marshal(map[string]any{"path": "f", "old_text": old, "new_text": text, "replace_all": all})
		if err != nil {
			return // what is no text cannot be asked for
		}
		_, err = r.tools["edit_file"].Run(t.Context(), tool.Call{Input: input})
		got := r.get(filepath.Join(r.dir, "f"))
		want := content
		if err == nil {
			want = strings.ReplaceAll(content, old, text)
			if !all && strings.Count(content, old) != 1 {
				t.Errorf("%q is %d times in %q and was replaced", old, strings.Count(content, old), content)
			}
		}
		if got != want {
			t.Errorf("%q for %q in %q: got %q, want %q (%v)", text, old, content, got, want, err)
		}
	})
}

// FuzzPatch: a patch from one text to another makes the other one of the first, in either form, or changes nothing.
func FuzzPatch(f *testing.F) {
	f.Add("one\ntwo\nthree\n", "one\n2\nthree\n", uint8(1))
	f.Add("a\na\na", "a\nb\na", uint8(0))
	f.Add("", "a\n", uint8(3))
	f.Add("a\nb\nc\nd\n", "a\nd", uint8(2))
	f.Fuzz(func(t *testing.T, before, after string, context uint8) {
		if !utf8.ValidString(before) || !utf8.ValidString(after) || strings.ContainsAny(before+after, "\r\x00\uFEFF") {
			return // what is no text in UTF-8 with LF has rules of its own: see TestPatch
		}
		old, kept := strings.CutSuffix(before, "\n")
		text, ended := strings.CutSuffix(after, "\n")
		if before == "" || after == "" {
			return
		}
		oldLines, newLines := strings.Split(old, "\n"), strings.Split(text, "\n")
		lead := 0
		for lead < min(len(oldLines), len(newLines)) && oldLines[lead] == newLines[lead] {
			lead++
		}
		if lead == len(newLines) && !ended || lead == len(oldLines) && !kept { // the last line changes its end
			lead--
		}
		trail := 0
		for trail < min(len(oldLines), len(newLines))-lead && oldLines[len(oldLines)-1-trail] == newLines[len(newLines)-1-trail] {
			trail++
		}
		begin := max(0, lead-int(context%4))
		end := min(trail, int(context%4))
		var hunk strings.Builder
		add := func(op string, lines []string, last, ended bool) {
			for i, line := range lines {
				hunk.WriteString(op + line + "\n")
				if last && i == len(lines)-1 && !ended {
					hunk.WriteString("\\ No newline at end of file\n")
				}
			}
		}
		if kept != ended && trail > 0 { // then the last line changes, too
			trail, end = 0, 0
		}
		add(" ", oldLines[begin:lead], false, true)
		add("-", oldLines[lead:len(oldLines)-trail], trail == 0, kept)
		add("+", newLines[lead:len(newLines)-trail], trail == 0, ended)
		add(" ", oldLines[len(oldLines)-trail:len(oldLines)-trail+end], end == trail, kept)
		counts := fmt.Sprintf("@@ -%d,%d +%d,%d @@\n", begin+1, len(oldLines)-trail+end-begin, begin+1, len(newLines)-trail+end-begin)
		for _, patch := range []string{
			"*** Begin Patch\n*** Update File: f\n@@\n" + hunk.String() + "*** End Patch\n",
			"--- a/f\n+++ b/f\n" + counts + hunk.String(),
		} {
			r := newRoom(t)
			r.put("f", before)
			_, err := r.run("apply_patch", "patch", patch)
			want := after
			if err != nil {
				want = before
			}
			if got := r.get(filepath.Join(r.dir, "f")); got != want {
				t.Errorf("%q: got %q, want %q (%v)", patch, got, want, err)
			}
		}
	})
}
