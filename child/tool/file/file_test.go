package file_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"

	"nexus.internal/child/tool"
	"nexus.internal/child/tool/file"
	"nexus.internal/protocol"
)

// room is a directory with something in it, something beside it, and the tools.
type room struct {
	t       *testing.T
	dir     string // the working directory
	outside string // a directory beside it that holds secret.txt
	tools   map[string]tool.Tool
}

func newRoom(t *testing.T) *room {
	t.Helper()
	top := t.TempDir()
	r := &room{t: t, dir: filepath.Join(top, "work"), outside: filepath.Join(top, "outside"), tools: map[string]tool.Tool{}}
	for _, dir := range []string{r.dir, r.outside} {
		r.must(os.Mkdir(dir, 0o777))
	}
	r.must(os.WriteFile(filepath.Join(r.outside, "secret.txt"), []byte("secret"), 0o666))
	r.open(file.Space{Cwd: r.dir})
	return r
}

// spaces is the space of all calls.
type spaces file.Space

func (s spaces) Space(tool.Call) file.Space { return file.Space(s) }

// checker is a [file.Checker].
type checker func(path, asked string, write bool) error

func (c checker) Check(path, asked string, write bool) error { return c(path, asked, write) }

// open gives the room tools that may touch the space.
func (r *room) open(s file.Space) {
	for _, t := range file.Tools(file.Options{Spaces: spaces(s)}) {
		r.tools[t.Spec().Name] = t
	}
}

func (r *room) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *room) put(name, content string) {
	r.t.Helper()
	path := filepath.Join(r.dir, name)
	r.must(os.MkdirAll(filepath.Dir(path), 0o777))
	r.must(os.WriteFile(path, []byte(content), 0o666))
}

func (r *room) get(path string) string {
	r.t.Helper()
	content, err := os.ReadFile(path)
	r.must(err)
	return string(content)
}

// run calls a tool. Members are name, value, name, value.
func (r *room) run(name string, members ...any) (string, error) {
	r.t.Helper()
	input := map[string]any{}
	for i := 0; i < len(members); i += 2 {
		input[members[i].(string)] = members[i+1]
	}
	encoded, err := json.Marshal(input)
	r.must(err)
	result, err := r.tools[name].Run(r.t.Context(), tool.Call{Input: encoded})
	return result.Text, err
}

// want checks a call's text, or its error if that begins with "!".
func (r *room) want(want, name string, members ...any) {
	r.t.Helper()
	got, err := r.run(name, members...)
	if err != nil {
		got = "!" + err.Error()
	}
	if diff := cmp.Diff(want, got); diff != "" {
		r.t.Errorf("%s %v: -want +got\n%s", name, members, diff)
	}
}

// ranges are first and last lines, two and two.
func ranges(lines ...int) (all []map[string]int) {
	for i := 0; i < len(lines); i += 2 {
		all = append(all, map[string]int{"first": lines[i], "last": lines[i+1]})
	}
	return all
}

func TestRead(t *testing.T) {
	r := newRoom(t)
	r.put("größe.txt", "eins\nzwei\r\ndrei 👋\nvier")
	r.put("empty", "")
	r.put("picture.png", "\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR")
	r.put("latin1.txt", "Gr\xf6\xdfe und mehr Text")
	r.put("ended.txt", "a\nb\n")
	r.must(syscall.Mkfifo(filepath.Join(r.dir, "pipe"), 0o666))
	all := "eins\nzwei\r\ndrei 👋\nvier"
	for _, tt := range []struct {
		want    string
		members []any
	}{
		{all, []any{"path", "größe.txt"}},
		{all, []any{"path", "./sub/../größe.txt"}},
		{all, []any{"path", filepath.Join(r.dir, "größe.txt")}},
		{all, []any{"path", "größe.txt", "offset", 1, "limit", 4}},
		{"zwei\r\n[more lines follow; go on with offset 3]", []any{"path", "größe.txt", "offset", 2, "limit", 1}},
		{"vier", []any{"path", "größe.txt", "offset", 4}},
		{"vier", []any{"path", "größe.txt", "offset", 4, "limit", 100}},
		{"!read größe.txt: offset 5 is past its end: it has 4 lines", []any{"path", "größe.txt", "offset", 5}},
		{"b\n", []any{"path", "ended.txt", "offset", 2, "limit", 1}},
		{"     1\ta\n     2\tb\n", []any{"path", "ended.txt", "line_numbers", true}},
		{"     4\tvier", []any{"path", "größe.txt", "offset", 4, "line_numbers", true}},
		{"     2\tzwei\r\n[more lines follow; go on with offset 3]", []any{"path", "größe.txt", "offset", 2, "limit", 1, "line_numbers", true}},
		{"[lines 2 to 2]\nzwei\r\n[lines 4 to 9]\nvier", []any{"path", "größe.txt", "ranges", ranges(2, 2, 4, 9)}},
		{"[lines 1 to 1]\n     1\ta\n", []any{"path", "ended.txt", "ranges", ranges(1, 1), "line_numbers", true}},
		{"[lines 2 to 3]\nb\n[the file ends here: it has 2 lines]", []any{"path", "ended.txt", "ranges", ranges(2, 3, 7, 8)}},
		{"!read ended.txt: range 3 is past its end: it has 2 lines", []any{"path", "ended.txt", "ranges", ranges(3, 3)}},
		{`!member "ranges[1]" must be lines from first to last, after those of the range before`, []any{"path", "ended.txt", "ranges", ranges(1, 2, 2, 3)}},
		{`!member "ranges[0]" must be lines from first to last, after those of the range before`, []any{"path", "ended.txt", "ranges", ranges(0, 2)}},
		{`!member "ranges[0]" must be lines from first to last, after those of the range before`, []any{"path", "ended.txt", "ranges", ranges(2, 1)}},
		{`!member "ranges" excludes offset and limit`, []any{"path", "ended.txt", "offset", 1, "ranges", ranges(2, 2)}},
		{"!read ended.txt: offset 3 is past its end: it has 2 lines", []any{"path", "ended.txt", "offset", 3}},
		{"[the file is empty]", []any{"path", "empty"}},
		{"!read picture.png: it is not a text file (16 bytes)", []any{"path", "picture.png"}},
		{"Größe und mehr Text", []any{"path", "latin1.txt"}},
		{"!read pipe: it is a named pipe", []any{"path", "pipe"}},
		{"!read .: it is a directory", []any{"path", "."}},
		{"!read none.txt: there is no such file or directory", []any{"path", "none.txt"}},
		{"!read empty/x: not a directory", []any{"path", "empty/x"}},
		{`!member "path" is missing`, nil},
		{`!member "path" is empty`, []any{"path", ""}},
		{`!member "path" must be a string, is the number 7`, []any{"path", 7}},
		{`!member "offset" must be 1 or more`, []any{"path", "empty", "offset", 0}},
		{`!member "limit" must be 1 or more`, []any{"path", "empty", "limit", 0}},
		{`!member "offset" must be a non-negative integer, is the number -1`, []any{"path", "empty", "offset", -1}},
		{`!member "lines" is not known; did you mean "line_numbers"?`, []any{"path", "empty", "lines", 1}},
	} {
		if tt.members != nil && tt.members[1] == "./sub/../größe.txt" {
			r.must(os.Mkdir(filepath.Join(r.dir, "sub"), 0o777))
		}
		r.want(tt.want, "read_file", tt.members...)
	}
}

// A file of any size costs a bounded answer that says where to go on, and all
// of it can be had piece by piece.
func TestReadHuge(t *testing.T) {
	r := newRoom(t)
	var whole strings.Builder
	for i := range 20_000 {
		fmt.Fprintf(&whole, "line %d with some ünicode\n", i+1)
	}
	r.put("huge.txt", whole.String())
	var got strings.Builder
	offset, pieces := 1, 0
	for offset > 0 {
		text, err := r.run("read_file", "path", "huge.txt", "offset", offset)
		r.must(err)
		if len(text) > 64<<10 {
			t.Fatalf("%d bytes in one answer", len(text))
		}
		head, note, more := strings.Cut(text, "[more lines follow; go on with offset ")
		got.WriteString(head)
		offset, pieces = 0, pieces+1
		if more {
			_, err := fmt.Sscanf(note, "%d]", &offset)
			r.must(err)
		}
	}
	if got.String() != whole.String() || pieces < 5 {
		t.Errorf("%d pieces put together are %d bytes, want those %d", pieces, got.Len(), whole.Len())
	}

	r.put("wide.txt", strings.Repeat("ä", 100_000)+"\nnext\n")
	text, err := r.run("read_file", "path", "wide.txt")
	r.must(err)
	if note := "\n[line 1 is longer than 61440 bytes; the rest of it is left out; go on with offset 2]"; !strings.HasSuffix(text, "ä"+note) {
		t.Errorf("a wide line ends in %q", text[len(text)-120:])
	}
	r.want("next\n", "read_file", "path", "wide.txt", "offset", 2)
}

func TestReadAborted(t *testing.T) {
	r := newRoom(t)
	r.put("a", "text")
	ctx, abort := context.WithCancel(t.Context())
	abort()
	if _, err := r.tools["read_file"].Run(ctx, tool.Call{Input: []byte(`{"path":"a"}`)}); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

func TestList(t *testing.T) {
	r := newRoom(t)
	r.want("[the directory is empty]", "list_directory")
	r.put("b.txt", "12")
	r.put("sub/größe.txt", "")
	r.put("a\nb", "")
	r.must(os.Symlink("b.txt", filepath.Join(r.dir, "link")))
	r.must(syscall.Mkfifo(filepath.Join(r.dir, "pipe"), 0o666))
	all := "\"a\\nb\" (0 bytes)\nb.txt (2 bytes)\nlink -> b.txt\npipe (a named pipe)\nsub/\n"
	r.want(all, "list_directory")
	r.want(all, "list_directory", "path", r.dir)
	r.want("größe.txt (0 bytes)\n", "list_directory", "path", "sub")
	r.want("!list b.txt: it is not a directory", "list_directory", "path", "b.txt")
	r.want("!list none: there is no such file or directory", "list_directory", "path", "none")
	for i := range 2001 {
		r.put(fmt.Sprintf("many/%04d", i), "")
	}
	text, err := r.run("list_directory", "path", "many")
	r.must(err)
	if lines := strings.Count(text, "\n"); lines != 2001 || !strings.HasSuffix(text, "[there are more than 2000 entries; the rest is left out]\n") {
		t.Errorf("%d lines of a large directory", lines)
	}
}

func TestWrite(t *testing.T) {
	r := newRoom(t)
	r.want("wrote 8 bytes to größe.txt (a new file)", "write_file", "path", "größe.txt", "content", "Grüße\n")
	r.want("wrote 0 bytes to größe.txt", "write_file", "path", "größe.txt", "content", "")
	r.want("wrote 1 bytes to a/b/c.txt (a new file)", "write_file", "path", "a/b/c.txt", "content", "x")
	r.want("!write a: it is a directory", "write_file", "path", "a", "content", "x")
	r.want("!write größe.txt/x: not a directory", "write_file", "path", "größe.txt/x", "content", "x")
	r.want(`!member "content" is missing`, "write_file", "path", "x")
	absolute := filepath.Join(r.dir, "abs.txt")
	r.want("wrote 3 bytes to "+absolute+" (a new file)", "write_file", "path", absolute, "content", "abs")
	if got := r.get(absolute); got != "abs" {
		t.Errorf("abs.txt holds %q", got)
	}

	script := filepath.Join(r.dir, "run.sh")
	r.put("run.sh", "old")
	r.must(os.Chmod(script, 0o750))
	r.want("wrote 3 bytes to run.sh", "write_file", "path", "run.sh", "content", "new")
	if info, err := os.Stat(script); err != nil || info.Mode().Perm() != 0o750 {
		t.Errorf("mode %v, error %v", info.Mode(), err)
	}
	r.must(os.Chmod(script, 0o444))
	r.want("!write run.sh: it is read-only", "write_file", "path", "run.sh", "content", "newer")

	r.must(os.Symlink("a/b/c.txt", filepath.Join(r.dir, "link")))
	r.want("wrote 4 bytes to link", "write_file", "path", "link", "content", "thru")
	if got := r.get(filepath.Join(r.dir, "a/b/c.txt")); got != "thru" {
		t.Errorf("the link's target holds %q", got)
	}
	r.must(syscall.Mkfifo(filepath.Join(r.dir, "pipe"), 0o666))
	r.want("!write pipe: it is a named pipe", "write_file", "path", "pipe", "content", "x")

	entries, err := filepath.Glob(filepath.Join(r.dir, ".nexus-*"))
	r.must(err)
	if len(entries) > 0 {
		t.Errorf("left behind: %v", entries)
	}
}

// An aborted write leaves the old content, and nothing beside it.
func TestWriteAborted(t *testing.T) {
	r := newRoom(t)
	r.put("a", "old")
	ctx, abort := context.WithCancel(t.Context())
	abort()
	if _, err := r.tools["write_file"].Run(ctx, tool.Call{Input: []byte(`{"path":"a","content":"new"}`)}); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	r.want("a (3 bytes)\n", "list_directory")
}

// A change that a file system keeps waiting keeps others waiting for a while only, and they
// say so.
func TestWriteBehindOneThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRoom(t)
		answers := make(chan struct{})
		r.open(file.Space{Cwd: r.dir, Checker: checker(func(path, _ string, _ bool) error {
			if filepath.Base(path) == "slow" {
				<-answers
			}
			return nil
		})})
		slow := make(chan error)
		go func() {
			_, err := r.run("write_file", "path", "slow", "content", "x")
			slow <- err
		}()
		synctest.Wait()
		r.want("!an earlier change of a file still goes on after 20s; nothing was changed", "write_file", "path", "a", "content", "x")
		close(answers)
		if err := <-slow; err != nil {
			t.Error(err)
		}
		r.want("wrote 1 bytes to a (a new file)", "write_file", "path", "a", "content", "x")
	})
}

// Whatever way out there is, nothing outside is read, listed or written.
func TestNoWayOut(t *testing.T) {
	r := newRoom(t)
	r.put("sub/x", "")
	for name, target := range map[string]string{
		"out": r.outside, "rel": "../outside", "file": filepath.Join(r.outside, "secret.txt"),
		"sub/up": "../../outside", "new": filepath.Join(r.outside, "new.txt"),
	} {
		r.must(os.Symlink(target, filepath.Join(r.dir, name)))
	}
	secret := filepath.Join(r.outside, "secret.txt")
	for _, path := range []string{
		"../outside/secret.txt", "sub/../../outside/secret.txt", secret, r.dir + "/../outside/secret.txt", "/etc/passwd",
		"out/secret.txt", "rel/secret.txt", "file", "sub/up/secret.txt", r.dir + "/out/secret.txt", r.dir + "x/secret.txt",
	} {
		want := "!" + path + " is outside the working directory"
		r.want(want, "read_file", "path", path)
		r.want(want, "write_file", "path", path, "content", "owned")
	}
	for _, path := range []string{"..", "../outside", "out", "rel", "sub/up", "/", r.outside} {
		r.want("!"+path+" is outside the working directory", "list_directory", "path", path)
	}
	r.want("!new is outside the working directory", "write_file", "path", "new", "content", "owned")
	r.want("!out/made/x is outside the working directory", "write_file", "path", "out/made/x", "content", "owned")
	if got := r.get(secret); got != "secret" {
		t.Errorf("the secret is now %q", got)
	}
	entries, err := os.ReadDir(r.outside)
	r.must(err)
	if len(entries) != 1 {
		t.Errorf("outside there is now %v", entries)
	}
}

// Where a link leads is what counts, however it is written.
func TestAbsoluteLinks(t *testing.T) {
	r := newRoom(t)
	r.put("sub/a", "text")
	for name, target := range map[string]string{
		"file": filepath.Join(r.dir, "sub/a"), "dir": filepath.Join(r.dir, "sub"), "sub/again": "../dir", "round": "round",
		"nowhere": filepath.Join(r.dir, "sub/new"), "nor": "nowhere",
	} {
		r.must(os.Symlink(target, filepath.Join(r.dir, name)))
	}
	r.want("text", "read_file", "path", "file")
	r.want("text", "read_file", "path", "sub/again/a")
	r.want("a (4 bytes)\nagain -> ../dir\n", "list_directory", "path", "./dir")
	r.want("wrote 3 bytes to "+filepath.Join(r.dir, "file"), "write_file", "path", filepath.Join(r.dir, "file"), "content", "new")
	r.want("!read round: too many levels of symbolic links", "read_file", "path", "round")
	if got := r.get(filepath.Join(r.dir, "sub/a")); got != "new" {
		t.Errorf("the file holds %q", got)
	}
	r.want("wrote 2 bytes to nor (a new file)", "write_file", "path", "nor", "content", "it")
	if got := r.get(filepath.Join(r.dir, "sub/new")); got != "it" {
		t.Errorf("the file that a link to nowhere named holds %q", got)
	}
}

// A path that goes up again from what does not exist made the directory before
// it and then failed.
func TestWriteUpFromNowhere(t *testing.T) {
	r := newRoom(t)
	r.want("!write a/b/../c: there is no such file or directory", "write_file", "path", "a/b/../c", "content", "x")
	r.want("!write a/../c: there is no such file or directory", "write_file", "path", "a/../c", "content", "x")
	r.want("[the directory is empty]", "list_directory")
	r.must(os.MkdirAll(filepath.Join(r.dir, "a/b"), 0o777))
	r.want("wrote 1 bytes to a/b/../c (a new file)", "write_file", "path", "a/b/../c", "content", "x")
	r.want("b/\nc (1 bytes)\n", "list_directory", "path", "a")
}

// A working directory that is also reached through a link takes absolute paths
// by either name.
func TestLinkedDirectory(t *testing.T) {
	r := newRoom(t)
	link := filepath.Join(t.TempDir(), "link")
	r.must(os.Symlink(r.dir, link))
	r.put("a", "text")
	r.want("text", "read_file", "path", filepath.Join(link, "a"))
	r.want("text", "read_file", "path", filepath.Join(r.dir, "a"))
}

func TestNoDirectory(t *testing.T) {
	r := newRoom(t)
	r.must(os.Rename(r.dir, r.dir+".old"))
	gone := ": the working directory is gone: " + r.dir
	r.want("!list ."+gone, "list_directory")
	r.want("!read a"+gone, "read_file", "path", "a")
	r.want("!write a"+gone, "write_file", "path", "a", "content", "x")
	r.want("!write b/a"+gone, "write_file", "path", "b/a", "content", "x")
	if _, err := os.Lstat(r.dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it was made anew: %v", err)
	}
	r.must(os.Rename(r.dir+".old", r.dir))
	r.want("wrote 1 bytes to a (a new file)", "write_file", "path", "a", "content", "x")
}

func ExampleTools() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	tools := file.Tools(file.Options{Spaces: spaces{Cwd: dir}})
	registry := tool.NewRegistry(tools, tool.Options{})
	for _, o := range registry.Run(context.Background(), "", []protocol.ToolCall{
		{Name: "write_file", Input: []byte(`{"path":"a.txt","content":"one\ntwo\n"}`)},
	}, nil) {
		fmt.Println(o.Text)
	}
	for _, o := range registry.Run(context.Background(), "", []protocol.ToolCall{
		{Name: "list_directory"},
		{Name: "read_file", Input: []byte(`{"path":"a.txt","offset":2}`)},
		{Name: "read_file", Input: []byte(`{"path":"../a.txt"}`)},
	}, nil) {
		fmt.Println(o.Text)
	}
	// Output:
	// wrote 8 bytes to a.txt (a new file)
	// a.txt (8 bytes)
	//
	// two
	//
	// read_file: ../a.txt is outside the working directory
}
