package file_test

import (
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
	tools := []string{"read_file", "list_directory", "write_file", "edit_file", "glob", "search_text"}
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
