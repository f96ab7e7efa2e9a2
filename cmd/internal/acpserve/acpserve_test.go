package acpserve

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
	"github.com/tidwall/gjson"

	"nexus.internal/protocol"
	"nexus.internal/protocol/frame"
	"nexus.internal/protocol/jsonrpc"
	"nexus.internal/protocol/strict"
)

// told is a turn whose updates go to a buffer.
func told(dir string) (*telling, *bytes.Buffer) {
	var out bytes.Buffer
	s := &server{peer: &peer{out: frame.NewWriter(&out), end: func(error) {}, asked: map[jsonrpc.ID]chan<- jsonrpc.Response{}}}
	x := &session{id: "a", turns: map[*turn]struct{}{}}
	return &telling{s: s, turn: x.begin(), dir: dir, calls: map[string]*shownCall{}, questions: map[string]context.CancelFunc{}}, &out
}

// A file that is overwritten is read as soon as its path is known, before all of its new content is.
func TestOverwrittenFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a.txt")
	if err := os.WriteFile(path, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	r, out := told(dir)
	r.step(protocol.ToolcallStart{ToolID: "1", ToolName: "write_file"})
	r.step(protocol.ToolcallInputDelta{ToolID: "1", Delta: `{"path":"a.t`})
	r.step(protocol.ToolcallInputDelta{ToolID: "1", Delta: `xt","content":"n`})
	if err := os.WriteFile(path, []byte("new"), 0o600); err != nil { // the call is faster than its events
		t.Fatal(err)
	}
	r.step(protocol.ToolcallInput{ToolID: "1", Input: jsontext.Value(`{"path":"a.txt","content":"new"}`)})
	lines := strings.Split(out.String(), "\n")
	got := gjson.Get(lines[1], "params.update.content").Raw
	if want := `[{"type":"diff","path":"` + path + `","oldText":"old","newText":"new"}]`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	for _, outside := range []string{"/etc/passwd", "../x", path + "/.."} {
		if held(absolute(outside, dir), filepath.Join(dir, "sub")) != nil {
			t.Errorf("%s was read", outside)
		}
	}
}

func TestPatched(t *testing.T) {
	type change struct{ path, old, added string }
	for _, tt := range []struct {
		name, patch string
		want        []change
	}{
		{"marked", "*** Begin Patch\n*** Update File: a.go\n@@ func a() {\n a\n--- b\n+c\n*** Add File: b.go\n+new\n*** Delete File: c.go\n*** End Patch\n", []change{
			{"/d/a.go", "a\n-- b\n", "a\nc\n"}, {"/d/b.go", "none", "new\n"},
		}},
		{"unified", "diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n a\n-b\n+c\n--- /dev/null\n+++ b/y\n@@ -0,0 +1 @@\n+new\n--- a/z\n+++ /dev/null\n@@ -1 +0,0 @@\n-old\n", []change{
			{"/d/x", "a\nb\n", "a\nc\n"}, {"/d/y", "none", "new\n"},
		}},
		{"none", "rubbish\n+a\n", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got []change
			for _, d := range patched(tt.patch, "/d") {
				got = append(got, change{d.Path, protocol.ValueOr(d.OldText, "none"), *d.NewText})
			}
			if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(change{})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// What a call shows is bounded: a line that is too long for the editor would be lost.
func TestLongCall(t *testing.T) {
	r, out := told("/d")
	control := strings.Repeat("\x01", 90<<10) // six bytes each in JSON
	r.step(protocol.ToolcallStart{ToolID: "1", ToolName: "edit_file"})
	input, err := json.Marshal(map[string]string{"path": "a", "old_text": control, "new_text": control})
	if err != nil {
		t.Fatal(err)
	}
	r.step(protocol.ToolcallInput{ToolID: "1", Input: input})
	r.step(protocol.ToolcallResult{ToolID: "1", Result: strings.Repeat("x", 2<<20), IsError: true})
	r.step(protocol.TextDelta{Delta: strings.Repeat("ü", 1<<20)})
	kinds, length := map[string]int{}, 0
	for line := range strings.Lines(out.String()) {
		if len(line) > frame.MaxWritten {
			t.Errorf("a line has %d bytes", len(line))
		}
		update := gjson.Get(line, "params.update")
		kinds[update.Get("sessionUpdate").Str]++
		length += len(update.Get("content.text").Str)
		if status := update.Get("status").Str; status == "in_progress" && update.Get("content.0.content.text").Str != "(too long to be shown here)" {
			t.Errorf("the input: %.200s", line)
		}
	}
	if kinds["tool_call"] != 1 || kinds["tool_call_update"] != 2 || length != 2<<20 {
		t.Errorf("told %v, and %d bytes of text", kinds, length)
	}
}

// The list of the tool todo is a plan, and no call.
func TestPlan(t *testing.T) {
	r, out := told("/d")
	r.step(protocol.ToolcallStart{ToolID: "1", ToolName: "todo"})
	r.step(protocol.ToolcallInput{ToolID: "1", Input: jsontext.Value(`{"items":[{"text":"a","status":"done"},{"text":"b","status":"in_progress"}]}`)})
	r.step(protocol.ToolcallResult{ToolID: "1", Result: "…"})
	r.step(protocol.ToolcallStart{ToolID: "2", ToolName: "todo"})
	r.step(protocol.ToolcallInput{ToolID: "2", Input: jsontext.Value(`{}`)})
	r.step(protocol.ToolcallResult{ToolID: "2", Result: "…"})
	const want = `{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"a","update":{"sessionUpdate":"plan","entries":[` +
		`{"content":"a","priority":"medium","status":"completed"},{"content":"b","priority":"medium","status":"in_progress"}]}}}` + "\n"
	if got := out.String(); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestNameFor(t *testing.T) {
	for dir, want := range map[string]string{
		"/home/me/web shop": "acp-web-shop-", "/": "acp-", "/x/..über..": "acp-ber-", "/" + strings.Repeat("a", 300): "acp-" + strings.Repeat("a", maxDirName) + "-",
	} {
		got := nameFor(dir)
		if !strings.HasPrefix(got, want) || len(got) != len(want)+8 {
			t.Errorf("%s: %s, want %sXXXXXXXX", dir, got, want)
		}
	}
}

// A link of a prompt is attached only if the file lies in the agent's directory, wherever symbolic links lead: the agent refuses the whole prompt
// for another one.
func TestLinkedFilesThroughLinks(t *testing.T) {
	top := t.TempDir()
	dir, outside := filepath.Join(top, "work"), filepath.Join(top, "outside")
	for _, at := range []string{filepath.Join(dir, "sub"), outside} {
		if err := os.MkdirAll(at, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(at, "f"), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, to := range map[string]string{"work/out": outside, "work/in": "sub", "work/file": "sub/f", "named": "work"} {
		if err := os.Symlink(to, filepath.Join(top, name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, cwd := range []string{dir, filepath.Join(top, "named")} {
		for name, attached := range map[string]bool{
			"work/sub/f": true, "work/in/f": true, "named/sub/f": true, "work/out/f": false, "named/out/f": false, "work/file": false, "outside/f": false, "work/gone/f": false,
		} {
			file := filepath.Join(top, name)
			text, files, err := message([]block{{Type: "resource_link", Name: "f", URI: new("file://" + file)}}, cwd)
			if err != nil || text != "[f]("+file+")" || len(files) == 1 != attached {
				t.Errorf("%s in %s: %q, %v, %v, want attached: %t", name, cwd, text, files, err, attached)
			}
		}
	}
}

func TestMessage(t *testing.T) {
	dir := t.TempDir()
	small := filepath.Join(dir, "small.txt")
	if err := os.WriteFile(small, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	prompt := []block{
		{Type: "text", Text: "see "},
		{Type: "resource_link", Name: "small", URI: new("file://" + small)},
		{Type: "text", Text: " and "},
		{Type: "resource_link", Name: "passwords", URI: new("file:///etc/passwd")},
		{Type: "resource", Resource: &resource{URI: "https://example.com/b/notes.md", Text: new("# Notes")}},
		{Type: "resource", Resource: &resource{URI: "file:///c/big.txt", Text: new(strings.Repeat("x", protocol.MaxAttachedText+1))}},
		{Type: "image", MimeType: new("image/png"), Data: "AAAA"},
	}
	text, files, err := message(prompt, dir)
	if want := "see [small](" + small + ") and [passwords](/etc/passwd)[notes.md](https://example.com/b/notes.md)[big.txt](/c/big.txt)"; err != nil || text != want {
		t.Errorf("%v, text %q, want %q", err, text, want)
	}
	want := []protocol.Attachment{{Path: small}, {Name: new("notes.md"), Text: new("# Notes")}, {Name: new("image-3.png"), Mime: new("image/png"), Data: new("AAAA")}}
	if diff := cmp.Diff(want, files); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// FuzzPrompt: a prompt of any content is refused, or is a message that the server takes.
func FuzzPrompt(f *testing.F) {
	f.Add([]byte(`{"sessionId":"a","prompt":[{"type":"text","text":"hi"},{"type":"resource_link","name":"x","uri":"file:///d/x"}]}`))
	f.Add([]byte(`{"sessionId":"a","prompt":[{"type":"image","data":"AAAA","mimeType":"image/png","uri":null},{"type":"resource","resource":{"uri":"a\u0000b","blob":"!"}}]}`))
	f.Add([]byte(`{"sessionId":"a","prompt":[{"type":"resource","resource":{"uri":"%zz/../..","text":""}},{"type":"audio"}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var p promptParams
		if strict.Unmarshal(data, &p, strict.IgnoreUnknown) != nil {
			return
		}
		text, files, err := message(p.Prompt, "/d")
		if err != nil {
			return
		}
		size := len(text)
		for _, file := range files {
			if err := file.Check(); err != nil {
				t.Errorf("%+v: %v", file, err)
			}
			size += len(protocol.Value(file.Text)) + len(protocol.Value(file.Data))
		}
		if !utf8.ValidString(text) || size > maxPrompt || size == 0 && len(files) == 0 {
			t.Errorf("a message of %d bytes: %.100q", size, text)
		}
	})
}

// FuzzPatched: whatever a model calls a patch, the diffs are of absolute paths, change something, and have no
// more text than the patch twice.
func FuzzPatched(f *testing.F) {
	f.Add("*** Begin Patch\n*** Update File: a\n@@\n a\n-b\n+c\n*** End Patch\n")
	f.Add("--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n")
	f.Fuzz(func(t *testing.T, patch string) {
		size := 0
		for _, d := range patched(patch, "/d") {
			size += len(protocol.Value(d.OldText)) + len(*d.NewText)
			if !filepath.IsAbs(d.Path) || protocol.Value(d.OldText) == "" && *d.NewText == "" {
				t.Errorf("%+v", d)
			}
		}
		if size > 2*(len(patch)+1) {
			t.Errorf("%d bytes of a patch of %d", size, len(patch))
		}
	})
}

// The editor gets all that somebody decides by, as the verbs show it, in a form that Markdown hides nothing of.
func TestQuestionShowsWhatRuns(t *testing.T) {
	r, out := told("/d")
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // nobody answers
	request := protocol.PermissionRequest{
		RequestID: "p-1", ToolID: "1", ToolName: "shell", Summary: "run: python3 -\u202e" + strings.Repeat("x", 1000), Command: "python3 - --check\n<!--\n```\n-->",
		Input:  jsontext.Value(`{"command":"python3 - --check\n<!--\n` + "```" + `\n-->","stdin":"import os"}`),
		Reason: "it runs", Deadline: "later", Decisions: []protocol.Decision{protocol.AllowOnce, protocol.Deny},
	}
	r.calls["1"] = &shownCall{tool: "shell"}
	r.ask(ctx, "a", request)
	r.asking.Wait()
	asked := gjson.Get(out.String(), "params.toolCall")
	if title := asked.Get("title").Str; !strings.HasPrefix(title, `run: python3 -\u202e`) || len(title) > maxSummary {
		t.Errorf("the title is %q", title)
	}
	want := "````\n" + `p-1 a: shell {"command":…,"stdin":"import os"}` + "\n  the whole command, 30 bytes:\n  | python3 - --check\n  | <!--\n  | ```\n  | -->\n" +
		"  it runs; without an answer denied at later\n````"
	if diff := cmp.Diff(want, asked.Get("content.0.content.text").Str); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// The choice for the session says what it covers where that fits on a button, and the content says it in any case.
func TestTheChoiceForTheSessionSaysWhatItCovers(t *testing.T) {
	long := strings.Repeat("x", maxName)
	for _, tt := range []struct{ covers, name, content string }{
		{"read_file: all in /w and below", "Allow for this session: read_file: all in /w and below", "  for the session: read_file: all in /w and below\n"},
		{"a\x1b[2K", `Allow for this session: a\u001b[2K`, `  for the session: "a\x1b[2K"` + "\n"},
		{long + "x", "Allow for this session", "  for the session: " + long + "x\n"},
		{"", "Allow for this session", ""}, // of an earlier version
	} {
		r, out := told("/d")
		ctx, cancel := context.WithCancel(t.Context())
		cancel() // nobody answers
		r.calls["1"] = &shownCall{tool: "read_file"}
		r.ask(ctx, "a", protocol.PermissionRequest{
			RequestID: "p-1", ToolID: "1", ToolName: "read_file", Input: jsontext.Value(`{"path":"/w/a"}`), Reason: "it reads", Deadline: "later",
			Decisions: []protocol.Decision{protocol.AllowOnce, protocol.AllowSession, protocol.Deny}, ForSession: tt.covers,
		})
		r.asking.Wait()
		asked := gjson.Get(out.String(), "params")
		if got := asked.Get(`options.#(kind=="allow_always").name`).Str; got != tt.name {
			t.Errorf("the choice is %q, want %q", got, tt.name)
		}
		if got, want := asked.Get("toolCall.content.0.content.text").Str, tt.content+"  it reads; without an answer denied at later\n"; !strings.Contains(got, want) {
			t.Errorf("the content is %q, want %q in it", got, want)
		}
	}
}
