package file_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"nexus.internal/child/tool"
	"nexus.internal/child/tool/file"
	"nexus.internal/protocol"
)

// tree is what is in the working directory: the content of files, by their paths, "dir" for empty directories, and
// where links lead.
func (r *room) tree() map[string]string {
	r.t.Helper()
	all := map[string]string{}
	r.must(filepath.WalkDir(r.dir, func(path string, entry fs.DirEntry, err error) error {
		name, _ := filepath.Rel(r.dir, path)
		switch {
		case err != nil:
			return err
		case entry.Type()&fs.ModeSymlink != 0:
			target, err := os.Readlink(path)
			all[name] = "-> " + target
			return err
		case entry.IsDir():
			if entries, err := os.ReadDir(path); err == nil && len(entries) == 0 && path != r.dir {
				all[name] = "dir"
			}
			return err
		}
		all[name] = r.get(path)
		return nil
	}))
	return all
}

// files are a tree that is written as "name=content|name=content".
func files(text string) map[string]string {
	all := map[string]string{}
	for one := range strings.SplitSeq(text, "|") {
		if name, content, ok := strings.Cut(one, "="); ok {
			all[name] = content
		}
	}
	return all
}

// marked is a patch between its marks.
func marked(lines ...string) string {
	return "*** Begin Patch\n" + strings.Join(lines, "\n") + "\n*** End Patch"
}

func lines(lines ...string) string { return strings.Join(lines, "\n") + "\n" }

func TestPatch(t *testing.T) {
	const twice = "class A:\n    def f(self):\n        return 1\n\nclass B:\n    def f(self):\n        return 1\n    def g(self):\n        return 1\n"
	for _, tt := range []struct {
		name   string
		before string
		patch  string
		want   string
		after  string // "" where nothing changes
	}{
		{
			"all at once", "a=1\n2\n3\n|gone=x\ny\n|old=p\nq\n|here=h",
			marked("*** Add File: sub/new", "+one", "+two", "*** Update File: a", " 1", "-2", "+zwei", "+drei", "*** Delete File: gone",
				"*** Update File: old", "*** Move to: dir/moved", "@@", "-p", "+P", "*** Update File: here", "*** Move to: there"),
			"added sub/new (2 lines)\nupdated a (+2 -1)\ndeleted gone (2 lines)\nmoved old to dir/moved (+1 -1)\nmoved here to there\n",
			"sub/new=one\ntwo\n|a=1\nzwei\ndrei\n3\n|dir/moved=P\nq\n|there=h",
		},
		{
			"a unified diff", "a=1\n2\n3\n|gone=x\n|old=p\nq\n|here=h",
			lines("diff --git a/a b/a", "index 1..2 100644", "--- a/a", "+++ b/a", "@@ -1,3 +1,3 @@", " 1", "-2", "+zwei", " 3",
				"diff --git a/new b/new", "new file mode 100644", "--- /dev/null", "+++ b/new", "@@ -0,0 +1 @@", "+n",
				"diff --git a/gone b/gone", "deleted file mode 100644", "--- a/gone", "+++ /dev/null", "@@ -1 +0,0 @@", "-x",
				"diff --git a/old b/moved", "similarity index 50%", "rename from old", "rename to moved", "--- a/old", "+++ b/moved", "@@ -1,2 +1,2 @@", "-p", "+P", " q",
				"diff --git a/here b/there", "similarity index 100%", "rename from here", "rename to there",
				"diff --git a/empty b/empty", "new file mode 100644", "index 0..0"),
			"updated a (+1 -1)\nadded new (1 line)\ndeleted gone (1 line)\nmoved old to moved (+1 -1)\nmoved here to there\nadded empty (0 lines)\n",
			"a=1\nzwei\n3\n|new=n\n|moved=P\nq\n|there=h|empty=",
		},
		{
			"diff -u with times", "a=1\n2\n|b=3\n", lines("--- a\t2026-01-01 10:00:00", "+++ a\t2026-01-02 10:00:00", "@@ -1,2 +1,2 @@", " 1", "-2", "+zwei", "--- b", "+++ b", "@@ -1 +1 @@", "-3", "+drei"),
			"updated a (+1 -1)\nupdated b (+1 -1)\n", "a=1\nzwei\n|b=drei\n",
		},
		{"moved by a and b", "x=1\n", lines("--- a/x", "+++ b/y", "@@ -1 +1 @@", "-1", "+2"), "moved x to y (+1 -1)\n", "y=2\n"},
		{"renamed by git without a and b", "x=1\n", lines("diff --git x y", "similarity index 10%", "rename from x", "rename to y", "--- x", "+++ y", "@@ -1 +1 @@", "-1", "+2"), "moved x to y (+1 -1)\n", "y=2\n"},
		{"quoted", "grün=1\n", lines(`--- "a/gr\303\274n"`, `+++ "b/gr\303\274n"`, "@@ -1 +1 @@", "-1", "+2"), "updated grün (+1 -1)\n", "grün=2\n"},
		{"lines that look like headers", "a=1\n-- x\n3\n|b=1\n", lines("--- a/a", "+++ b/a", "@@ -1,3 +1,3 @@", " 1", "--- x", "+++ y", " 3", "--- a/b", "+++ b/b", "@@ -1 +1 @@", "-1", "+2"), "updated a (+1 -1)\nupdated b (+1 -1)\n", "a=1\n++ y\n3\n|b=2\n"},
		{"counts that are too large", "a=1\n2\n|b=1\n", lines("--- a/a", "+++ b/a", "@@ -1,9 +1,9 @@", " 1", "-2", "+zwei", "--- a/b", "+++ b/b", "@@ -1,9 +1,9 @@", "-1", "+2"), "updated a (+1 -1)\nupdated b (+1 -1)\n", "a=1\nzwei\n|b=2\n"},
		{"numbers that are wrong", "a=1\n2\n3\n4\n", lines("--- a/a", "+++ b/a", "@@ -77,2 +88,2 @@", " 3", "-4", "+vier"), "updated a (+1 -1)\n", "a=1\n2\n3\nvier\n"},
		{"the number decides", "a=x\n1\nx\n1\nx\n1\n", lines("--- a/a", "+++ b/a", "@@ -3,2 +3,3 @@", " x", "+new", " 1", "@@ -5,2 +6,2 @@", " x", "-1", "+2"), "updated a (+2 -1)\n", "a=x\n1\nx\nnew\n1\nx\n2\n"},
		{"all lines are lower than said", "a=0\n0\nx\n1\nx\n1\nx\n2\n", lines("--- a/a", "+++ b/a", "@@ -1,2 +1,2 @@", "-0", "-0", "@@ -5,2 +3,3 @@", " x", "+new", " 1"), "updated a (+1 -2)\n", "a=x\n1\nx\nnew\n1\nx\n2\n"},
		{"a function", "a=" + twice, marked("*** Update File: a", "@@ class B", "@@ def g(self):", "-        return 1", "+        return 2"), "updated a (+1 -1)\n", "a=" + strings.TrimSuffix(twice, "1\n") + "2\n"},
		{"the first after a function", "a=" + twice, marked("*** Update File: a", "@@ class B:", "-        return 1", "+        return 2"), "updated a (+1 -1)\n", "a=" + strings.Replace(twice, "1\n    def g", "2\n    def g", 1)},
		{"one function twice", "a=" + twice, marked("*** Update File: a", "@@ class B:", "-    def f(self):", "+    def ff(self):", "@@ class B:", "-    def g(self):", "+    def gg(self):"), "updated a (+2 -2)\n", "a=" + strings.NewReplacer("g(", "gg(", "class B:\n    def f", "class B:\n    def ff").Replace(twice)},
		{"after a line", "a=1\n2\n", marked("*** Update File: a", "@@ 1", "+new"), "updated a (+1 -0)\n", "a=1\nnew\n2\n"},
		{"hunks that share a line", "a=1\n2\n3\n", marked("*** Update File: a", "@@", "-1", "+eins", " 2", "@@", " 2", "-3", "+drei"), "updated a (+2 -2)\n", "a=eins\n2\ndrei\n"},
		{"at the end", "a=x\ny\nx\n", marked("*** Update File: a", "@@", "-x", "+z", "*** End of File"), "updated a (+1 -1)\n", "a=x\ny\nz\n"},
		{"appended", "a=x\n", marked("*** Update File: a", "@@", "+z", "*** End of File"), "updated a (+1 -0)\n", "a=x\nz\n"},
		{"empty lines around", "a=1\n\n2\n|b=1\n", "\n*** Begin Patch\n\n*** Update File: a\n@@\n 1\n\n-2\n+zwei\n\n*** Update File: b\n@@\n-1\n+2\n\n*** Add File: c\n+c\n\n*** End Patch\n\n", "updated a (+1 -1)\nupdated b (+1 -1)\nadded c (1 line)\n", "a=1\n\nzwei\n|b=2\n|c=c\n"},
		{"space at the ends of lines", "a=1 \n2\t\n3\n", marked("*** Update File: a", " 1", "-2", "+zwei", " 3  "), "updated a (+1 -1)\n", "a=1 \nzwei\n3\n"},
		{"exactly rather than nearly", "a=x \n1\nx\n1\n", marked("*** Update File: a", " x", "-1", "+2"), "updated a (+1 -1)\n", "a=x \n1\nx\n2\n"},
		{"CRLF", "a=1\r\n2\r\n3", marked("*** Update File: a", " 1", "-2", "+zwei", "+drei", " 3"), "updated a (+2 -1)\n", "a=1\r\nzwei\r\ndrei\r\n3"},
		{"a patch in CRLF", "a=1\n2\n", strings.ReplaceAll(marked("*** Update File: a", " 1", "-2", "+zwei", "*** Add File: b", "+x"), "\n", "\r\n"), "updated a (+1 -1)\nadded b (1 line)\n", "a=1\nzwei\n|b=x\n"},
		{"a new file in CRLF", "", marked("*** Add File: b", "+x\r", "+y\r"), "added b (2 lines)\n", "b=x\r\ny\r\n"},
		{"each line's own ending", "a=1\r\n2\n3\r\n", marked("*** Update File: a", "-1", "+eins", "-2", "+zwei", "-3", "+drei"), "updated a (+3 -3)\n", "a=eins\r\nzwei\ndrei\r\n"},
		{"no last line end", "a=1\n2", marked("*** Update File: a", " 1", "-2", "+zwei"), "updated a (+1 -1)\n", "a=1\nzwei"},
		{"no last line end, more lines", "a=1\r\n2", marked("*** Update File: a", " 2", "+3"), "updated a (+1 -0)\n", "a=1\r\n2\r\n3"},
		{"no last line end, fewer lines", "a=1\r\n2", marked("*** Update File: a", " 1", "-2"), "updated a (+0 -1)\n", "a=1"},
		{"a last line end that comes", "a=1\n2", lines("--- a/a", "+++ b/a", "@@ -1,2 +1,2 @@", " 1", "-2", `\ No newline at end of file`, "+2"), "updated a (+1 -1)\n", "a=1\n2\n"},
		{"a last line end that goes", "a=1\n2\n", lines("--- a/a", "+++ b/a", "@@ -1,2 +1,2 @@", " 1", "-2", "+zwei", `\ No newline at end of file`), "updated a (+1 -1)\n", "a=1\nzwei"},
		{"a new file without a last line end", "", lines("--- /dev/null", "+++ b/a", "@@ -0,0 +1 @@", "+x", `\ No newline at end of file`), "added a (1 line)\n", "a=x"},
		{"deleted without a last line end", "a=1\n2", marked("*** Delete File: a"), "deleted a (2 lines)\n", "b"},
		{"all goes", "a=1\n2\n", marked("*** Update File: a", "-1", "-2"), "updated a (+0 -2)\n", "a="},
		{"into an empty file", "a=", marked("*** Update File: a", "+1"), "updated a (+1 -0)\n", "a=1\n"},
		{"mark", "a=\uFEFF1\r\n2\r\n", marked("*** Update File: a", "-1", "+eins"), "updated a (+1 -1)\n", "a=\uFEFFeins\r\n2\r\n"},
		{"mark in both", "a=\uFEFF1\n", marked("*** Update File: a", "-\uFEFF1", "+\uFEFFeins"), "updated a (+1 -1)\n", "a=\uFEFFeins\n"},
		{"UTF-16", "a=\xff\xfe1\x00\n\x00", marked("*** Update File: a", "-1", "+2"), "updated a (+1 -1)\n", "a=\xff\xfe2\x00\n\x00"},
		{"Windows-1252", "a=Gr\xf6\xdfe und Text\n1\n", marked("*** Update File: a", " Größe und Text", "-1", "+ä"), "updated a (+1 -1)\n", "a=Gr\xf6\xdfe und Text\n\xe4\n"},

		{"no text", "a=\x00", marked("*** Update File: a", "-1", "+2"), "!update a: it is not a text file (1 bytes)\nnothing was changed", ""},
		{"a character that there is not", "a=Gr\xf6\xdfe und Text\n", marked("*** Update File: a", " Größe und Text", "+👋"), "!update a: the file is in Windows-1252, which has no '👋'\nnothing was changed", ""},
		{
			"nothing at all if one fails", "a=1\n|b=2\n", marked("*** Add File: new/n", "+x", "*** Update File: a", "-1", "+2", "*** Update File: b", "@@", "-3", "+4", "*** Delete File: c"),
			"!update b: hunk 1 (line 8 of the patch): its text is not there, nor any line like its first, \"3\"\ndelete c: there is no such file or directory\nnothing was changed", "",
		},
		{"another line", "a=alpha\nfunc compute(a, b int) int {\n", marked("*** Update File: a", " func compute(a int, b int) int {", "+x"), "!update a: hunk 1 (line 3 of the patch): its text is not there; the nearest to its first line is line 2: \"func compute(a, b int) int {\"\nnothing was changed", ""},
		{"another second line", "a=1\n2\n", marked("*** Update File: a", " 1", "-3", "+4"), "!update a: hunk 1 (line 3 of the patch): its text is not there; its first 1 line is from line 1 on, but then comes \"2\", not \"3\"\nnothing was changed", ""},
		{"ambiguous", "a=" + twice, marked("*** Update File: a", "@@ def f(self):", "-        return 1", "+        return 2"), "!update a: hunk 1 (line 3 of the patch): its text is there 2 times, in lines 3 and 7: put more of the lines around it into the hunk, or the line of its function after @@\nnothing was changed", ""},
		{"ambiguous but for the number", "a=1\nx\n1\n", lines("--- a/a", "+++ b/a", "@@ -2 +2 @@", "-1", "+2"), "!update a: hunk 1 (line 3 of the patch): its text is there 2 times, in lines 1 and 3: put more of the lines around it into the hunk, or the line of its function after @@\nnothing was changed", ""},
		{"the wrong order", "a=1\n2\n3\n", marked("*** Update File: a", "@@", "-3", "+drei", "@@", "-1", "+eins"), "!update a: hunk 2 (line 6 of the patch): its text is in line 1, above the change of hunk 1: hunks come in the order of the file\nnothing was changed", ""},
		{"not at the end", "a=1\n2\n", marked("*** Update File: a", "@@", "-1", "+eins", "*** End of File"), "!update a: hunk 1 (line 3 of the patch): its text is in line 1, but the file does not end there\nnothing was changed", ""},
		{"not after the function", "a=1\ndef f():\n", marked("*** Update File: a", "@@ def f():", "-1", "+2"), "!update a: hunk 1 (line 3 of the patch): its text is in line 1, but not after the line \"def f():\"\nnothing was changed", ""},
		{"no such function", "a=1\n", marked("*** Update File: a", "@@ def f():", "-1", "+2"), "!update a: hunk 1 (line 3 of the patch): no line is, or begins with, \"def f():\", which stands after @@\nnothing was changed", ""},
		{"anywhere", "a=1\n", marked("*** Update File: a", "@@", "+2"), "!update a: hunk 1 (line 3 of the patch): it has only new lines: put some of the lines around them into it\nnothing was changed", ""},
		{"after one of two lines", "a=1\n1\n", marked("*** Update File: a", "@@ 1", "+2"), "!update a: hunk 1 (line 3 of the patch): the line after @@ is there 2 times, in lines 1 and 2: put lines around the new ones into the hunk\nnothing was changed", ""},
		{"after a line above", "a=1\n2\n", marked("*** Update File: a", "@@", "-2", "+3", "@@ 1", "+2"), "!update a: hunk 2 (line 6 of the patch): the line after @@ is in line 1, above the change of the hunk before: hunks come in the order of the file\nnothing was changed", ""},
		{"the same", "a=1\n", marked("*** Update File: a", "-1", "+1"), "!update a: that changes nothing: line endings stay as they are\nnothing was changed", ""},
		{"there already", "a=1\n|b=2\n", marked("*** Add File: a", "+2", "*** Update File: b", "*** Move to: a"), "!add a: a is there already\nmove b to a: a is there already\nnothing was changed", ""},
		{"twice", "a=1\n2\n", marked("*** Update File: a", "-1", "+3", "*** Update File: ./a", "-2", "+4"), "!./a is named twice: name each file once, with all its hunks\nnothing was changed", ""},
		{"in itself", "", marked("*** Add File: a", "+3", "*** Add File: a/b", "+4"), "!one of a and a/b is in the other one\nnothing was changed", ""},
		{"a file that becomes a directory", "a=1\n", marked("*** Delete File: a", "*** Add File: a/b", "+4"), "!add a/b: not a directory\nnothing was changed", ""},
		{"a directory", "d/x=1\n", marked("*** Delete File: d"), "!delete d: it is a directory\nnothing was changed", ""},
		{"a directory to be moved", "d/x=1\n", marked("*** Update File: d", "*** Move to: e"), "!move d: it is a directory\nnothing was changed", ""},
		{"more than is deleted", "a=1\n2\n", lines("--- a/a", "+++ /dev/null", "@@ -1 +0,0 @@", "-1"), "!delete a: it holds more than what the patch takes away\nnothing was changed", ""},
		{"grown", "a=" + strings.Repeat("x", 16<<20-4) + "\n", marked("*** Update File: a", "+12345", "*** End of File"), "!update a: it would have more than 16777216 bytes\nnothing was changed", ""},
		{"anchors without end", "a=" + strings.Repeat("x\n", 20), marked("*** Update File: a", strings.TrimSuffix(strings.Repeat("@@ x\n", 17), "\n"), " x", "+y"), "!update a: hunk 1 (line 3 of the patch): 17 lines stand after @@ before it, at most 16 are taken\nnothing was changed", ""},
		{"anchors in a long file", "a=" + strings.Repeat("x\n", 1<<16), marked("*** Update File: a", strings.TrimSuffix(strings.Repeat("@@ x\n@@ z\n", 8), "\n"), " x", "+y"), "!update a: hunk 1 (line 3 of the patch): no line is, or begins with, \"z\", which stands after @@\nnothing was changed", ""},
		{"repeated without end", "a=" + strings.Repeat("\n", 1<<17), marked("*** Update File: a", " ", " ", "-", "+x"), "!update a: hunk 1 (line 3 of the patch): the file repeats itself too often to find the place\nnothing was changed", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRoom(t)
			for name, content := range files(tt.before) {
				r.put(name, content)
			}
			r.want(tt.want, "apply_patch", "patch", tt.patch)
			want := files(tt.after)
			if tt.after == "" {
				want = files(tt.before)
			}
			if diff := cmp.Diff(want, r.tree()); diff != "" {
				t.Errorf("-want +got\n%.2000s", diff)
			}
		})
	}
}

// What is no patch is refused, with the line at which it stops to be one.
func TestBadPatches(t *testing.T) {
	many := marked(strings.Repeat("*** Delete File: a\n", 101))
	for _, tt := range []struct{ name, patch, want string }{
		{"empty", "\n", "the patch is empty"},
		{"prose", "\nHere it is:\n*** Begin Patch\n", `line 2 of the patch: "Here it is:": a patch begins with "*** Begin Patch", "diff --git " or "--- "`},
		{"nothing in it", marked(), "the patch changes no file"},
		{"cut off", "*** Begin Patch\n*** Add File: a\n+x", `line 3 of the patch: there it ends without "*** End Patch": is it whole?`},
		{"more after it", marked("*** Delete File: a") + "\n*** Delete File: b\n", `line 4 of the patch: "*** Delete File: b" comes after "*** End Patch"`},
		{"another mark", marked("*** Rename File: a"), `line 2 of the patch: "*** Rename File: a", want "*** Add File: ", "*** Update File: ", "*** Delete File: " or "*** End Patch"`},
		{"no name", marked("*** Delete File: "), "line 2 of the patch: it names no file"},
		{"no new name", marked("*** Update File: a", "*** Move to: ", "-1"), "line 2 of the patch: it names no file"},
		{"no hunk", marked("*** Update File: a"), "line 2 of the patch: the update of a has no hunk"},
		{"a new file without +", marked("*** Add File: a", "+x", "y"), `line 4 of the patch: "y": each line of a new file begins with +`},
		{"a deleted file with lines", marked("*** Delete File: a", "-x"), `line 3 of the patch: "-x", want "*** Add File: ", "*** Update File: ", "*** Delete File: " or "*** End Patch"`},
		{"no line of a hunk", marked("*** Update File: a", "@@", "-x", "y"), `line 5 of the patch: "y": a line of a hunk begins with a space, + or -`},
		{"only context", marked("*** Update File: a", "@@", " x"), "line 3 of the patch: the hunk changes nothing: no line of it begins with + or -"},
		{"no line before a mark", marked("*** Update File: a", "@@", `\ No newline at end of file`), `line 4 of the patch: "\\ No newline at end of file": no line stands before it`},
		{"no +++", "--- a\n@@ -1 +1 @@\n-x\n", `line 2 of the patch: "@@ -1 +1 @@", want "+++ "`},
		{"two names", "--- x\n+++ y\n@@ -1 +1 @@\n-x\n+y\n", `line 1 of the patch: "x" and "y" are different files: name one, or a/… and b/… to move it`},
		{"nowhere", "--- /dev/null\n+++ /dev/null\n", "line 1 of the patch: it names no file"},
		{"quotes", "--- \"a/x\\q\"\n+++ b/x\n", `line 1 of the patch: "\"a/x\\q\"" is not quoted as in git`},
		{"nothing changes", "--- a/x\n+++ b/x\n", "line 1 of the patch: it changes nothing of x"},
		{"old lines in a new file", "--- /dev/null\n+++ b/x\n@@ -1 +1 @@\n-x\n+y\n", "line 3 of the patch: x is new, but the hunk has lines that do not begin with +"},
		{"between files", "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-x\n+y\nOnly in b: z\n", `line 6 of the patch: "Only in b: z": a line of a hunk begins with a space, + or -`},
		{"a symbolic link", "diff --git a/x b/x\nnew file mode 120000\n--- /dev/null\n+++ b/x\n@@ -0,0 +1 @@\n+/etc/passwd\n", `line 2 of the patch: "new file mode 120000": mode 120000: only regular files are changed`},
		{"a copy", "diff --git a/x b/y\nsimilarity index 100%\ncopy from x\ncopy to y\n", `line 3 of the patch: "copy from x": copies are not made: copy_file does it`},
		{"bytes", "diff --git a/x b/x\nindex 1..2\nBinary files a/x and b/x differ\n", `line 3 of the patch: "Binary files a/x and b/x differ": only text is changed`},
		{"no names of git", "diff --git\nindex 1..2\n", `line 1 of the patch: "diff --git": a patch begins with "*** Begin Patch", "diff --git " or "--- "`},
		{"an empty name of git", "diff --git \nindex 1..2\n", "line 1 of the patch: it names no file"},
		{"too many files", many, "the patch changes 101 files, at most 100 are changed by one"},
		{"too large", strings.Repeat("x", 1<<20+1), "the patch has 1048577 bytes, at most 1048576 are read"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRoom(t)
			r.put("a", "x\n")
			r.want("!"+tt.want, "apply_patch", "patch", tt.patch)
			if _, err := r.tools["apply_patch"].(tool.Scoped).Scope(jsontext.Value(`{"patch":` + strconv.Quote(tt.patch) + `}`)); err == nil || err.Error() != tt.want {
				t.Errorf("nobody should be asked about it: %v", err)
			}
			if diff := cmp.Diff(files("a=x\n"), r.tree()); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

// What is asked about names all paths, and whose rules hold besides.
func TestScopeOfPatch(t *testing.T) {
	scope := func(patch string) tool.Scope {
		t.Helper()
		scope, err := newRoom(t).tools["apply_patch"].(tool.Scoped).Scope(jsontext.Value(`{"patch":` + strconv.Quote(patch) + `}`))
		if err != nil {
			t.Fatal(err)
		}
		return scope
	}
	var twelve []string
	for i := range 12 {
		twelve = append(twelve, fmt.Sprintf("*** Add File: n%d", i), "+x")
	}
	for _, tt := range []struct {
		patch string
		want  tool.Scope
	}{
		{marked("*** Add File: a", "+x", "*** Update File: b", "-1"), tool.Scope{Paths: []string{"a", "b"}, AlsoUnder: []string{"edit_file"}, Summary: "patch: add a, update b"}},
		{marked("*** Delete File: a", "*** Delete File: b", "*** Update File: c", "*** Move to: d"), tool.Scope{
			Paths: []string{"a", "b", "c", "d"}, AlsoUnder: []string{"delete_file", "move_file"}, Summary: "patch: delete a, delete b, move c to d",
		}},
		{marked(twelve...), tool.Scope{
			Paths:   strings.Fields("n0 n1 n2 n3 n4 n5 n6 n7 n8 n9 n10 n11"),
			Summary: "patch: add n0, add n1, add n2, add n3, add n4, add n5, add n6, add n7, add n8, add n9, and 2 more",
		}},
	} {
		tt.want.Action = protocol.ActionWrite
		if diff := cmp.Diff(tt.want, scope(tt.patch)); diff != "" {
			t.Errorf("-want +got\n%s", diff)
		}
	}
}

func TestModesOfPatch(t *testing.T) {
	r := newRoom(t)
	for name, mode := range map[string]os.FileMode{"kept": 0o751, "on": 0o640, "off": 0o755, "moved": 0o700} {
		r.put(name, "1\n")
		r.must(os.Chmod(filepath.Join(r.dir, name), mode))
	}
	r.want("updated kept (+1 -1)\nupdated on (+0 -0)\nupdated off (+1 -1)\nmoved moved to there (+1 -1)\nadded new (1 line)\n", "apply_patch", "patch",
		lines("--- a/kept", "+++ b/kept", "@@ -1 +1 @@", "-1", "+2",
			"diff --git a/on b/on", "old mode 100644", "new mode 100755",
			"diff --git a/off b/off", "old mode 100755", "new mode 100644", "--- a/off", "+++ b/off", "@@ -1 +1 @@", "-1", "+2",
			"diff --git a/moved b/there", "rename from moved", "rename to there", "--- a/moved", "+++ b/there", "@@ -1 +1 @@", "-1", "+2",
			"diff --git a/new b/new", "new file mode 100755", "--- /dev/null", "+++ b/new", "@@ -0,0 +1 @@", "+2"))
	for name, want := range map[string]os.FileMode{"kept": 0o751, "on": 0o750, "off": 0o644, "there": 0o700} {
		if info, err := os.Stat(filepath.Join(r.dir, name)); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: mode %v, error %v, want %v", name, info.Mode(), err, want)
		}
	}
	if info, err := os.Stat(filepath.Join(r.dir, "new")); err != nil || info.Mode().Perm()&0o100 == 0 {
		t.Errorf("new: mode %v, error %v", info.Mode(), err)
	}
	r.must(os.Chmod(filepath.Join(r.dir, "kept"), 0o444))
	r.want("!update kept: it is read-only\nnothing was changed", "apply_patch", "patch", marked("*** Update File: there", "+x", "*** End of File", "*** Update File: kept", "-2", "+3"))
	r.want("!delete kept: it is read-only\nnothing was changed", "apply_patch", "patch", marked("*** Delete File: kept"))
	if got := r.get(filepath.Join(r.dir, "there")); got != "2\n" {
		t.Errorf("there: %q", got)
	}
}

// A patch touches nothing outside of the working directory or out of bounds, whatever its paths lead through, and
// then nothing of what it may touch either.
func TestPatchStaysInside(t *testing.T) {
	r := newRoom(t)
	r.put("a", "1\n")
	r.put("b", "1\n")
	r.put("keep/k", "kept\n")
	r.must(os.WriteFile(r.outside+"/secret.txt", []byte("secret\n"), 0o666))
	for name, target := range map[string]string{"out": r.outside, "secret": r.outside + "/secret.txt", "dangling": r.outside + "/new", "link": "b", "tokeep": "keep"} {
		r.must(os.Symlink(target, filepath.Join(r.dir, name)))
	}
	r.open(file.Space{Cwd: r.dir, Checker: checker(func(path, _ string, write bool) error {
		if write && strings.HasPrefix(path, filepath.Join(r.dir, "keep")) {
			return errors.New("out of bounds")
		}
		return nil
	})})
	before := r.tree()
	for _, bad := range []string{
		"*** Add File: ../outside/new\n+x", "*** Add File: " + r.outside + "/new\n+x", "*** Add File: out/new\n+x", "*** Add File: dangling\n+x",
		"*** Add File: sub/../../outside/new\n+x", "*** Add File: out/deep/new\n+x", "*** Add File: link/x\n+x", "*** Add File: .\n+x",
		"*** Update File: ../outside/secret.txt\n-secret\n+x", "*** Update File: out/secret.txt\n-secret\n+x", "*** Update File: secret\n-secret\n+x",
		"*** Delete File: ../outside/secret.txt", "*** Delete File: out/secret.txt", "*** Delete File: secret", "*** Delete File: out", "*** Delete File: link", "*** Delete File: ..", "*** Delete File: .",
		"*** Update File: secret\n*** Move to: x", "*** Update File: out/secret.txt\n*** Move to: x", "*** Update File: link\n*** Move to: x",
		"*** Update File: link\n*** Move to: x\n-1\n+2", "*** Update File: keep/k\n*** Move to: out/k", "*** Update File: keep/k\n*** Move to: ../k\n-kept\n+x",
		"*** Add File: keep/new\n+x", "*** Add File: tokeep/deep/new\n+x", "*** Update File: keep/k\n-kept\n+x", "*** Update File: tokeep/k\n-kept\n+x",
		"*** Delete File: keep/k", "*** Delete File: tokeep/k", "*** Update File: keep/k\n*** Move to: x", "*** Add File: ~root/x\n+x",
	} {
		got, err := r.run("apply_patch", "patch", marked("*** Add File: good/new", "+x", "*** Update File: a", "-1", "+2", bad))
		if err == nil || !strings.HasSuffix(err.Error(), "\nnothing was changed") || strings.Contains(err.Error(), "kept") {
			t.Errorf("%s: %s, error %v", bad, got, err)
		}
	}
	if diff := cmp.Diff(before, r.tree()); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	entries, err := os.ReadDir(r.outside)
	r.must(err)
	if len(entries) != 1 || r.get(r.outside+"/secret.txt") != "secret\n" {
		t.Errorf("%d entries outside, %q", len(entries), r.get(r.outside+"/secret.txt"))
	}
	r.want("updated link (+1 -1)\n", "apply_patch", "patch", marked("*** Update File: link", "-1", "+2")) // as edit_file does
	if got := r.get(filepath.Join(r.dir, "b")); got != "2\n" {
		t.Errorf("b: %q", got)
	}
}

// What somebody else changes while a patch is prepared is not lost, and nothing else is changed then.
func TestPatchOfWhatChanges(t *testing.T) {
	for _, tt := range []struct {
		name string
		do   func(r *room) error
		want string
	}{
		{"another content", func(r *room) error { return os.WriteFile(filepath.Join(r.dir, "a"), []byte("other\n"), 0o666) }, "update a: something else has changed it just now; read it again"},
		{"gone", func(r *room) error { return os.Remove(filepath.Join(r.dir, "a")) }, "update a: something else has changed it just now; read it again"},
		{"a directory", func(r *room) error {
			return errors.Join(os.Remove(filepath.Join(r.dir, "a")), os.Mkdir(filepath.Join(r.dir, "a"), 0o777))
		}, "update a: it is a directory"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRoom(t)
			r.put("a", "1\n")
			done := false
			r.open(file.Space{Cwd: r.dir, Checker: checker(func(path, _ string, _ bool) error {
				if filepath.Base(path) != "last" || done { // a was read then
					return nil
				}
				done = true
				return tt.do(r)
			})})
			_, err := r.run("apply_patch", "patch", marked("*** Add File: sub/first", "+x", "*** Update File: a", "-1", "+2", "*** Add File: last", "+x"))
			if err == nil || err.Error() != tt.want+"\nnothing was changed" {
				t.Errorf("error %v, want %s", err, tt.want)
			}
			for name, content := range r.tree() {
				if name != "a" || content == "2\n" {
					t.Errorf("%s has %q", name, content)
				}
			}
		})
	}
}

func TestPatchAborted(t *testing.T) {
	r := newRoom(t)
	r.put("a", "1\n")
	ctx, abort := context.WithCancel(t.Context())
	r.open(file.Space{Cwd: r.dir, Checker: checker(func(path, _ string, _ bool) error {
		if filepath.Base(path) == "last" {
			abort()
		}
		return nil
	})})
	patch := marked("*** Add File: sub/first", "+x", "*** Update File: a", "-1", "+2", "*** Add File: last", "+x")
	if _, err := r.tools["apply_patch"].Run(ctx, tool.Call{Input: jsontext.Value(`{"patch":` + strconv.Quote(patch) + `}`)}); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	if diff := cmp.Diff(files("a=1\n"), r.tree()); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}
