package toolenv_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"nexus.internal/child/tool"
	"nexus.internal/child/toolenv"
	"nexus.internal/protocol"
	"nexus.internal/protocol/rights"
)

// The test binary plays a program that agents run: a server.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "serve" {
		fmt.Println(serve(os.Args[2]))
		return
	}
	goleak.VerifyTestMain(m)
}

// serve answers connections until it is killed.
func serve(address string) error {
	ln, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	fmt.Println("listening")
	for {
		conn, err := ln.Accept()
		if err != nil {
			return err
		}
		fmt.Fprintln(conn, "the job")
		conn.Close()
	}
}

// site is a working directory with something beside it.
type site struct {
	t            *testing.T
	dir, outside string
	o            toolenv.Options
	*toolenv.Env
}

// newSite opens an Env with these permissions and whatever set says.
func newSite(t *testing.T, asked protocol.Permissions, set ...func(*toolenv.Options)) *site {
	t.Helper()
	top, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	s := &site{t: t, dir: filepath.Join(top, "work"), outside: filepath.Join(top, "outside")}
	for _, dir := range []string{s.dir, s.outside} {
		if err := os.Mkdir(dir, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	s.put(filepath.Join(s.outside, "secret.txt"), "secret")
	s.o = toolenv.Options{Cwd: s.dir, Permissions: asked}
	for _, f := range set {
		f(&s.o)
	}
	s.Env = s.open(s.o)
	return s
}

func (s *site) open(o toolenv.Options) *toolenv.Env {
	s.t.Helper()
	w, err := toolenv.Open(o)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		if err := w.Close(); err != nil {
			s.t.Error(err)
		}
	})
	return w
}

func (s *site) put(path, content string) {
	s.t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o666); err != nil {
		s.t.Fatal(err)
	}
}

// call is a call with that input: name, value, name, value.
func call(name string, members ...any) protocol.ToolCall {
	input := map[string]any{}
	for i := 0; i < len(members); i += 2 {
		input[members[i].(string)] = members[i+1]
	}
	raw, err := json.Marshal(input, json.Deterministic(true))
	if err != nil {
		panic(err)
	}
	return protocol.ToolCall{ID: "c1", Name: name, Input: raw}
}

// run carries out one call, in a turn named t1.
func run(ctx context.Context, w *toolenv.Env, c protocol.ToolCall) string {
	return took.ReplaceAllString(w.Tools().Run(ctx, "t1", []protocol.ToolCall{c}, nil)[0].Text, "${1}]")
}

// took is how long a command took: a result says it of one of five seconds, as any takes on a busy machine.
var took = regexp.MustCompile(`(\[exit status \d+), after [0-9.ms]+\]`)

// ran is how long a job runs.
var ran = regexp.MustCompile(`(running for )\d+s`)

func (s *site) want(want string, c protocol.ToolCall) {
	s.t.Helper()
	got := run(s.t.Context(), s.Env, c)
	got = strings.NewReplacer(s.dir, "WORK", s.outside, "OUTSIDE").Replace(got)
	got = ran.ReplaceAllString(got, "${1}T")
	if diff := cmp.Diff(want, got); diff != "" {
		s.t.Errorf("%s %s: -want +got\n%s", c.Name, c.Input, diff)
	}
}

// external is somebody else's tool.
type external string

func (e external) Spec() tool.Spec {
	return tool.Spec{Name: string(e), InputSchema: jsontext.Value(`{"type":"object"}`)}
}

func (e external) Run(context.Context, tool.Call) (tool.Result, error) {
	return tool.Result{Text: "done"}, nil
}

type presets map[string]protocol.Permissions

func (p presets) Presets() map[string]protocol.Permissions { return p }

type source []tool.Tool

func (s source) Tools() []tool.Tool { return s }

func names(w *toolenv.Env) string {
	var all []string
	for _, spec := range w.Tools().Specs() {
		all = append(all, spec.Name)
	}
	return strings.Join(all, " ")
}

// What is denied whatever it is called with is not offered.
func TestToolsThatAreOffered(t *testing.T) {
	const builtin = "read_file list_directory write_file edit_file apply_patch move_file copy_file delete_file glob search_text shell job_start job_output job_input job_stop job_list sleep todo"
	const all = builtin + " web_fetch"
	for _, tt := range []struct {
		asked protocol.Permissions
		want  string
	}{
		{protocol.Permissions{}, all + " mine docs"},
		{protocol.Permissions{Preset: "yolo"}, all + " mine docs"},
		{protocol.Permissions{Preset: "sandboxed"}, builtin},
		{protocol.Permissions{Preset: "sandboxed", Tools: map[string]protocol.ToolRule{"docs": {Mode: "allow"}}}, builtin + " docs"},
		{protocol.Permissions{Preset: "trusted", DisabledTools: []string{"shell", "docs"}}, "read_file list_directory write_file edit_file apply_patch move_file copy_file delete_file glob search_text sleep todo web_fetch mine"},
		{protocol.Permissions{Preset: "trusted", Tools: map[string]protocol.ToolRule{"write_file": {Mode: "deny"}}}, strings.NewReplacer(" write_file", "", " apply_patch move_file copy_file delete_file", "").Replace(all) + " mine docs"},
		{protocol.Permissions{Preset: "reader"}, "read_file list_directory glob search_text shell job_start job_output job_input job_stop job_list sleep todo web_fetch mine docs"},
	} {
		s := newSite(t, tt.asked, func(o *toolenv.Options) {
			o.Tools = []tool.Tool{external("mine")}
			o.Sources = []toolenv.Source{source{external("docs"), external("read_file"), external("docs")}}
			o.Presets = presets{"reader": {Preset: "trusted", DisabledTools: []string{"write_file", "edit_file"}}}
		})
		if got := names(s.Env); got != tt.want {
			t.Errorf("%+v: %s, want %s", tt.asked, got, tt.want)
		}
	}
}

// The tools of a turn are made anew only if something has changed.
func TestToolsAreKept(t *testing.T) {
	given := source{external("docs")}
	s := newSite(t, protocol.Permissions{}, func(o *toolenv.Options) { o.Sources = []toolenv.Source{&given} })
	last, before := s.Tools(), s.Rights()
	for _, change := range []struct {
		name   string
		change func() error
		same   bool
		want   string // the last tools
	}{
		{"nothing", func() error { return nil }, true, "todo web_fetch docs"},
		{"another of the same kind", func() error { given = source{external("do"), external("docs")}; return nil }, false, "todo web_fetch do docs"},
		{"permissions", func() error {
			return s.SetPermissions(protocol.Permissions{Preset: "trusted", DisabledTools: []string{"docs"}}, protocol.WithinCeiling)
		}, false, "todo web_fetch do"},
		{"nothing again", func() error { return nil }, true, "todo web_fetch do"},
		{"what held before", func() error { s.Return(before); return nil }, false, "todo web_fetch do docs"},
		{"the directory", func() error { return s.SetCwd(t.TempDir(), protocol.WithinCeiling) }, false, "todo web_fetch do docs"},
		{"tools that cannot be compared", func() error { given = source{odd{}}; return nil }, false, "todo web_fetch odd"},
		{"nothing that can be compared", func() error { return nil }, false, "todo web_fetch odd"},
	} {
		if err := change.change(); err != nil {
			t.Fatal(err)
		}
		now := s.Tools()
		if got := names(s.Env); (now == last) != change.same || !strings.HasSuffix(got, change.want) {
			t.Errorf("%s: the same: %v, tools %s", change.name, now == last, got)
		}
		last = now
	}
}

// odd is a tool that cannot be compared.
type odd struct{ _ []int }

func (odd) Spec() tool.Spec {
	return tool.Spec{Name: "odd", InputSchema: jsontext.Value(`{"type":"object"}`)}
}

func (odd) Run(context.Context, tool.Call) (tool.Result, error) { return tool.Result{}, nil }

func TestWhereToolsMayGo(t *testing.T) {
	var rules protocol.Permissions
	s := newSite(t, protocol.Permissions{}, func(o *toolenv.Options) {
		top := filepath.Dir(o.Cwd)
		rules = protocol.Permissions{
			Preset: "sandboxed", AllowedPaths: []string{filepath.Join(top, "outside")}, BlockedPaths: []string{filepath.Join(o.Cwd, "blocked")},
			WritePaths: []string{filepath.Join(o.Cwd, "out"), filepath.Join(top, "outside", "new.txt")},
			Tools:      map[string]protocol.ToolRule{"search_text": {AllowedPaths: []string{filepath.Join(o.Cwd, "out")}}},
		}
		o.Permissions = rules
		for _, dir := range []string{"blocked", "src"} {
			if err := os.Mkdir(filepath.Join(o.Cwd, dir), 0o777); err != nil {
				t.Fatal(err)
			}
		}
	})
	s.put(s.dir+"/blocked/key", "secret")
	s.put(s.dir+"/src/a", "text")
	for link, target := range map[string]string{"toblocked": "blocked", "tosecret": "/etc/passwd", "tooutside": "../outside", "src/up": "../blocked/key"} {
		if err := os.Symlink(target, filepath.Join(s.dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	secret := filepath.Join(s.outside, "secret.txt")
	s.want("text", call("read_file", "path", "src/a"))
	s.want("secret", call("read_file", "path", secret))
	s.want("secret", call("read_file", "path", "../outside/secret.txt"))
	s.want("secret", call("read_file", "path", "tooutside/secret.txt"))
	for _, path := range []string{"blocked/key", "./src/../blocked//key", s.dir + "/blocked/key"} {
		s.want("read_file: WORK/blocked/key is out of bounds for this agent", call("read_file", "path", path))
	}
	for _, path := range []string{"toblocked/key", "src/up", "tosecret"} {
		s.want("read_file: "+path+" leads out of what this agent may touch", call("read_file", "path", path))
	}
	s.want("read_file: /etc/passwd is outside the working directory WORK and the allowed paths OUTSIDE", call("read_file", "path", "/etc/passwd"))
	s.want("blocked/ [out of bounds]\nsrc/\ntoblocked -> blocked\ntooutside -> ../outside\ntosecret -> /etc/passwd\n", call("list_directory"))
	s.want("list_directory: WORK/blocked is out of bounds for this agent", call("list_directory", "path", "blocked"))
	s.want("src/a\nsrc/up\ntoblocked\ntooutside\ntosecret\n", call("glob", "pattern", "**"))
	s.want("OUTSIDE/secret.txt\n", call("glob", "pattern", "**", "path", s.outside))
	s.want("search_text: WORK is outside of what search_text may touch: WORK/out", call("search_text", "pattern", "e"))

	const only = " may not be changed, only what is in OUTSIDE/new.txt, WORK/out"
	s.want("write_file: WORK/src/a"+only, call("write_file", "path", "src/a", "content", "x"))
	s.want("edit_file: WORK/src/a"+only, call("edit_file", "path", "src/a", "old_text", "t", "new_text", "x"))
	s.want("delete_file: WORK/src/a"+only, call("delete_file", "path", "src/a"))
	s.want("move_file: WORK/src/a"+only, call("move_file", "from", "src/a", "to", "out/a"))
	s.want("apply_patch: WORK/src/a"+only, call("apply_patch", "patch", "*** Begin Patch\n*** Add File: out/new\n+x\n*** Update File: src/a\n-text\n+x\n*** End Patch"))
	s.want("apply_patch: WORK/blocked/key is out of bounds for this agent", call("apply_patch", "patch", "*** Begin Patch\n*** Add File: out/new\n+x\n*** Delete File: blocked/key\n*** End Patch"))
	s.want("copy_file: WORK/src/b"+only, call("copy_file", "from", "src/a", "to", "src/b"))
	s.want("delete_file: WORK/blocked/a is out of bounds for this agent", call("delete_file", "path", "blocked/a"))
	s.want("write_file: OUTSIDE/secret.txt"+only, call("write_file", "path", secret, "content", "x"))
	s.want("wrote 1 bytes to out/a/b (a new file)", call("write_file", "path", "out/a/b", "content", "e"))
	s.want("out/a/b:1:e\n", call("search_text", "pattern", "e", "path", "out"))
	s.want("wrote 1 bytes to "+"OUTSIDE/new.txt (a new file)", call("write_file", "path", s.outside+"/new.txt", "content", "x"))

	if err := s.SetPermissions(protocol.Permissions{Preset: "yolo"}, protocol.WithinCeiling); err != nil {
		t.Fatal(err)
	}
	s.want("secret", call("read_file", "path", "src/up"))
	s.want("wrote 3 bytes to OUTSIDE/secret.txt", call("write_file", "path", secret, "content", "new"))
}

// A directory that was moved to is that of the next turn; one that runs goes on
// where it is.
func TestMoving(t *testing.T) {
	s := newSite(t, protocol.Permissions{})
	s.put(s.dir+"/a", "old")
	s.put(s.outside+"/a", "new")
	before := s.Tools()
	if err := s.SetCwd(s.outside, protocol.WithinCeiling); err != nil {
		t.Fatal(err)
	}
	s.want("new", call("read_file", "path", "a"))
	if got := before.Run(t.Context(), "", []protocol.ToolCall{call("read_file", "path", "a")}, nil)[0].Text; got != "old" {
		t.Errorf("the turn that runs reads %q", got)
	}
	for _, tt := range []struct{ dir, want string }{
		{"a", `working directory: "a" is not absolute`},
		{s.outside + "/a", "working directory: " + s.outside + "/a is not a directory"},
		{s.dir + "/none", "working directory: stat " + s.dir + "/none: no such file or directory"},
	} {
		if err := s.SetCwd(tt.dir, protocol.WithinCeiling); fmt.Sprint(err) != tt.want || s.Cwd() != s.outside {
			t.Errorf("%s: %v, want %s", tt.dir, err, tt.want)
		}
	}

	if err := s.SetPermissions(protocol.Permissions{Preset: "sandboxed"}, protocol.WithinCeiling); err != nil {
		t.Fatal(err)
	}
	if err := s.SetCwd(s.dir, protocol.WithinCeiling); err == nil || !strings.Contains(err.Error(), "is outside of what a sandboxed agent may touch: "+s.outside) {
		t.Errorf("a sandboxed agent moved: %v", err)
	}
	sub := filepath.Join(s.outside, "sub")
	if err := os.Mkdir(sub, 0o777); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{sub, s.outside} { // down, and back again
		if err := s.SetCwd(dir, protocol.WithinCeiling); err != nil {
			t.Error(err)
		}
	}
	link := filepath.Join(s.outside, "out")
	if err := os.Symlink(s.dir, link); err != nil {
		t.Fatal(err)
	}
	if err := s.SetCwd(link, protocol.WithinCeiling); err == nil {
		t.Error("a sandboxed agent moved by a link")
	}
}

func TestCeiling(t *testing.T) {
	ceiling := &protocol.Permissions{Preset: "trusted", DisabledTools: []string{"shell"}}
	s := newSite(t, protocol.Permissions{Preset: "yolo", AllowedPaths: []string{"/usr"}}, func(o *toolenv.Options) {
		ceiling.AllowedPaths = []string{o.Cwd}
		o.Ceiling = ceiling
	})
	want := protocol.Permissions{Preset: "trusted", DisabledTools: []string{"shell"}, AllowedPaths: []string{s.dir}}
	if diff := cmp.Diff(want, s.Permissions()); diff != "" {
		t.Errorf("at the start: -want +got\n%s", diff)
	}
	err := s.SetPermissions(protocol.Permissions{Preset: "yolo", AllowedPaths: []string{"/usr"}}, protocol.WithinCeiling)
	if want := "this agent's ceiling does not allow the allowed path /usr, nor the preset yolo (at most trusted)"; fmt.Sprint(err) != want {
		t.Errorf("got %v, want %s", err, want)
	}
	if diff := cmp.Diff(want, s.Permissions()); diff != "" {
		t.Errorf("after a refusal: -want +got\n%s", diff)
	}
	if err := s.SetPermissions(protocol.Permissions{Preset: "sandboxed"}, protocol.WithinCeiling); err != nil {
		t.Error(err)
	}
	if got := names(s.Env); strings.Contains(got, "shell") {
		t.Errorf("the ceiling's disabled tool is back: %s", got)
	}
	if err := s.SetCwd(s.outside, protocol.WithinCeiling); err == nil || !strings.Contains(err.Error(), "is outside of what this agent's ceiling allows") {
		t.Errorf("moved beyond the ceiling: %v", err)
	}
	o := s.o
	o.Cwd = s.outside
	if _, err := toolenv.Open(o); err == nil {
		t.Error("begun beyond the ceiling")
	}
	o = s.o
	o.Permissions.Preset, o.Ceiling = "", &protocol.Permissions{Preset: "sandboxed"}
	if got := s.open(o).Permissions().Preset; got != "sandboxed" {
		t.Errorf("the default under a sandboxed ceiling is %s", got)
	}
}

// A working directory may become a link during a turn: another agent moved it away and put
// a link there. Calls that name no path are refused then, as those that name one.
// Permissions that could not be shown, saved or given to another process are refused, and
// nothing has changed then; also where they are too large only together with the ceiling's.
func TestLargePermissions(t *testing.T) {
	list := func(name string, n, size int) (paths []string) {
		for i := range n {
			paths = append(paths, fmt.Sprintf("/%s/%03d%s", name, i, strings.Repeat("x", size)))
		}
		return paths
	}
	ceiling := protocol.Permissions{Preset: rights.Trusted, BlockedPaths: list("c", 200, 10)}
	s := newSite(t, protocol.Permissions{Preset: rights.Trusted}, func(o *toolenv.Options) { o.Ceiling = &ceiling })
	env := s.Env
	for name, p := range map[string]protocol.Permissions{
		"may have 98304": {BlockedPaths: list("a", 50, 2000)},
		`with this agent's ceiling: member "blocked_paths" has more than 256`: {BlockedPaths: list("a", 57, 10)},
	} {
		p.Preset = rights.Trusted
		before := env.Rights()
		if err := env.SetPermissions(p, protocol.WithinCeiling); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("error %v, want %s", err, name)
		}
		if diff := cmp.Diff(before.Permissions, env.Rights().Permissions); diff != "" {
			t.Errorf("it has changed: %s", diff)
		}
	}
	if err := env.SetPermissions(protocol.Permissions{Preset: rights.Trusted, BlockedPaths: list("a", 56, 10)}, protocol.WithinCeiling); err != nil {
		t.Error(err)
	}
	again := toolenv.Options{Cwd: t.TempDir(), Permissions: env.Rights().Permissions, Restored: true, Ceiling: &ceiling}
	if got := s.open(again).Rights().Permissions.BlockedPaths; len(got) != 256 {
		t.Errorf("%d paths come back", len(got))
	}
}

func TestWorkingDirectoryBecomesALink(t *testing.T) {
	s := newSite(t, protocol.Permissions{Preset: "sandboxed"})
	if err := errors.Join(os.Rename(s.dir, s.dir+".old"), os.Symlink(s.outside, s.dir)); err != nil {
		t.Fatal(err)
	}
	s.want("shell: WORK leads out of what this agent may touch", call("shell", "command", "true"))
	s.want("list_directory: . leads out of what this agent may touch", call("list_directory", "path", "."))
	s.want("read_file: secret.txt leads out of what this agent may touch", call("read_file", "path", "secret.txt"))
}

// A path that was held before may be a link since: the agent itself may have
// made it one, to get further than it may.
func TestRestoredPathsAreNotFollowed(t *testing.T) {
	s := newSite(t, protocol.Permissions{Preset: "sandboxed"}, func(o *toolenv.Options) {
		o.Permissions.AllowedPaths = []string{filepath.Join(o.Cwd, "data")}
	})
	held := s.Permissions()
	if err := os.Symlink(s.outside, filepath.Join(s.dir, "data")); err != nil {
		t.Fatal(err)
	}
	s.want("read_file: data/secret.txt leads out of what this agent may touch", call("read_file", "path", "data/secret.txt"))
	s.o.Permissions, s.o.Restored = held, true
	s.Env = s.open(s.o)
	s.want("read_file: data/secret.txt leads out of what this agent may touch", call("read_file", "path", "data/secret.txt"))
}

// What is too long for a result is kept where the agent can read it, under any
// preset, and is gone with the Env.
func TestLongResults(t *testing.T) {
	long := strings.Repeat("0123456789\n", 10_000)
	s := newSite(t, protocol.Permissions{Preset: "sandboxed", Tools: map[string]protocol.ToolRule{"talk": {Mode: "allow"}}}, func(o *toolenv.Options) {
		o.Spill = filepath.Join(t.TempDir(), "scratch")
		o.Tools = []tool.Tool{talker(long)}
	})
	_, note, _ := strings.Cut(run(t.Context(), s.Env, call("talk")), "[cut off here: ")
	_, path, _ := strings.Cut(strings.TrimSuffix(note, "]"), "the whole is in ")
	if kept, err := os.ReadFile(path); err != nil || string(kept) != long {
		t.Fatalf("%q: %d bytes, %v", note, len(kept), err)
	}
	s.want("0123456789\n", call("read_file", "path", path, "offset", 10_000))
	s.want("write_file: "+path+" is outside the working directory WORK", call("write_file", "path", path, "content", ""))
	for range 100 {
		run(t.Context(), s.Env, call("talk"))
	}
	if files, err := os.ReadDir(filepath.Dir(path)); err != nil || len(files) != 64 {
		t.Errorf("%d files are kept, %v", len(files), err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Dir(path)); !os.IsNotExist(err) {
		t.Errorf("still there: %v", err)
	}
}

type talker string

func (talker) Spec() tool.Spec {
	return tool.Spec{Name: "talk", InputSchema: jsontext.Value(`{"type":"object"}`)}
}

func (t talker) Run(context.Context, tool.Call) (tool.Result, error) {
	return tool.Result{Text: string(t)}, nil
}

func TestOpenFile(t *testing.T) {
	s := newSite(t, protocol.Permissions{})
	s.put(s.dir+"/a", "text")
	f, info, err := s.Open(s.dir + "/a")
	if err != nil || info.Size() != 4 {
		t.Fatal(err)
	}
	f.Close()
	if _, _, err := s.Open(s.outside + "/secret.txt"); err == nil || !strings.Contains(err.Error(), "is outside the working directory") {
		t.Errorf("got %v", err)
	}
}

func TestState(t *testing.T) {
	s := newSite(t, protocol.Permissions{Preset: "trusted", BlockedPaths: []string{"/srv"}}, func(o *toolenv.Options) {
		o.Allowances = []protocol.Allowance{
			{Tool: "write_file", Action: protocol.ActionWrite, Dir: "/out"},
			{Tool: "edit_file", Action: protocol.ActionWrite, Dir: "/out"},
			{Tool: "shell", Action: protocol.ActionExecute, Dir: "/work", Programs: []string{"make"}},
			{Tool: "docs", Action: protocol.ActionExternal},
		}
	})
	state := func() string {
		t.Helper()
		got, err := json.Marshal(s.State(), json.Deterministic(true))
		if err != nil {
			t.Fatal(err)
		}
		return strings.ReplaceAll(string(got), s.dir, "/work")
	}
	want := `{"permission_level":"trusted","disabled_tools":[],` +
		`"policy":{"cwd":"/work","allowed_paths":[],"write_paths":null,"blocked_paths":["/srv"],"network":null,"tools":{}},` +
		`"session_allowances":{"read_paths":[],"write_paths":["/out"],"exec_dirs":{"shell":["/work"]},"tools":["docs"]},` +
		`"allowances":[{"tool":"write_file","action":"write","dir":"/out"},{"tool":"edit_file","action":"write","dir":"/out"},` +
		`{"tool":"shell","action":"execute","dir":"/work","programs":["make"]},{"tool":"docs","action":"external"}],` +
		`"ceiling":{"preset":"trusted","allowed_paths":["/work"],"blocked_paths":["/srv"]},"preset":"","tools":[]}`
	if diff := cmp.Diff(want, state()); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	s.Forget()
	if err := s.SetPermissions(protocol.Permissions{Preset: "yolo", WritePaths: []string{}}, protocol.WithinCeiling); err != nil {
		t.Fatal(err)
	}
	if got := state(); !strings.Contains(got, `"allowed_paths":null,"write_paths":[]`) || strings.Contains(got, "/out") {
		t.Errorf("got %s", got)
	}
	if got := s.Permissions().WritePaths; got == nil || slices.Contains(got, "/") {
		t.Errorf("write paths are %v", got)
	}
}

// Calls of one answer find what those before them did, each time: two edits of a file, a
// write and its read, and commands of which one reads what another writes.
func TestCallsInOrder(t *testing.T) {
	s := newSite(t, protocol.Permissions{Preset: "yolo"})
	for range 100 {
		outcomes := s.Tools().Run(t.Context(), "", []protocol.ToolCall{
			call("write_file", "path", "f", "content", "one two"),
			call("edit_file", "path", "f", "old_text", "one", "new_text", "1"),
			call("edit_file", "path", "f", "old_text", "two", "new_text", "2"),
			call("read_file", "path", "f"), call("read_file", "path", "f"),
		}, nil)
		for _, o := range outcomes {
			if o.IsError || o.Call.Name == "read_file" && !strings.Contains(o.Text, "1 2") {
				t.Fatalf("%s: %s", o.Call.Name, o.Text)
			}
		}
	}
	for range 5 {
		outcomes := s.Tools().Run(t.Context(), "", []protocol.ToolCall{
			call("shell", "command", "rm -f g; sleep 0.02; echo made > g"), call("shell", "command", "cat g"),
			call("write_file", "path", "g", "content", "anew"), call("shell", "command", "cat g; echo last > g"), call("read_file", "path", "g"),
		}, nil)
		for i, want := range []string{"", "made", "", "anew", "last"} {
			if !strings.Contains(outcomes[i].Text, want) || outcomes[i].IsError {
				t.Fatalf("call %d: got %q, want %q", i, outcomes[i].Text, want)
			}
		}
	}
}
