package tool_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
	"github.com/tidwall/gjson"
	"go.uber.org/goleak"

	"nexus.internal/child/permission"
	"nexus.internal/child/tool"
	"nexus.internal/protocol"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake is a tool that does what its test says.
type fake struct {
	name string
	run  func(ctx context.Context, c tool.Call) (string, error)
}

func (f fake) Spec() tool.Spec {
	return tool.Spec{Name: f.name, InputSchema: jsontext.Value(`{"type":"object"}`)}
}

func (f fake) Run(ctx context.Context, c tool.Call) (tool.Result, error) {
	text, err := f.run(ctx, c)
	return tool.Result{Text: text}, err
}

// reader is a fake that only reads, unless its input says {"bad":1}.
type reader struct{ fake }

func (reader) Scope(in jsontext.Value) (tool.Scope, error) {
	if strings.Contains(string(in), "bad") {
		return tool.Scope{Action: protocol.ActionRead}, errors.New("bad input")
	}
	return tool.Scope{Action: protocol.ActionRead}, nil
}

// writer is a fake that writes.
type writer struct{ fake }

func (writer) Scope(jsontext.Value) (tool.Scope, error) {
	return tool.Scope{Action: protocol.ActionWrite}, nil
}

// guard is a [tool.Guard].
type guard func(ctx context.Context, c tool.Call) (permission.Permit, error)

func (g guard) Authorize(ctx context.Context, _ tool.Tool, c tool.Call) (permission.Permit, error) {
	return g(ctx, c)
}

// spill is a [tool.Spill].
type spill func(name, text string) (string, error)

func (s spill) Save(name, text string) (string, error) { return s(name, text) }

// recorder is a [tool.Watcher] that keeps what it is told.
type recorder []string

func (r *recorder) Output(c protocol.ToolCall, text string) { *r = append(*r, c.Name+" "+text) }
func (r *recorder) Done(o tool.Outcome)                     { *r = append(*r, o.Text) }

// pause waits for as long as its input says: {"d":"3s"}.
func pause(ctx context.Context, c tool.Call) (string, error) {
	d, err := time.ParseDuration(strings.Trim(string(c.Input)[len(`{"d":`):len(c.Input)-1], `"`))
	if err != nil {
		return "", err
	}
	select {
	case <-time.After(d):
		return "after " + d.String(), nil
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

func call(name, input string) protocol.ToolCall {
	return protocol.ToolCall{ID: "id of " + name + input, Name: name, Input: jsontext.Value(input)}
}

func TestOutcomes(t *testing.T) {
	tools := []tool.Tool{
		fake{"echo", func(_ context.Context, c tool.Call) (string, error) { return string(c.Input), nil }},
		fake{"refuse", func(context.Context, tool.Call) (string, error) { return "", errors.New("no such file") }},
		fake{"panic", func(context.Context, tool.Call) (string, error) { panic("out of cheese") }},
		fake{"long", func(context.Context, tool.Call) (string, error) { return strings.Repeat("ä", 10), nil }},
		fake{"bytes", func(context.Context, tool.Call) (string, error) { return "a\xffb", nil }},
	}
	registry := tool.NewRegistry(tools, tool.Options{MaxOutput: 15})
	long := tool.NewRegistry(tools, tool.Options{})
	for _, tt := range []struct {
		name     string
		registry *tool.Registry
		call     protocol.ToolCall
		text     string
		isError  bool
	}{
		{"well", long, call("echo", `{"a":1}`), `{"a":1}`, false},
		{"no input", long, call("echo", ``), `{}`, false},
		{"null input", long, call("echo", `null`), `{}`, false},
		{"string input", long, call("echo", `"{"`), "echo: the input is not a JSON object", true},
		{"broken input", long, call("echo", `{"a"`), "echo: the input is not a JSON object", true},
		{"unknown", long, call("nothing", `{}`), `there is no tool "nothing"`, true},
		{"no name", long, call("", `{}`), "the model called a tool without a name", true},
		{"refused", long, call("refuse", `{}`), "refuse: no such file", true},
		{"panic", long, call("panic", `{}`), "panic: the tool panicked: out of cheese", true},
		{"cut at a character", registry, call("long", `{}`), "äääääää\n[cut off here: 6 of 20 bytes are missing]", false},
		{"not UTF-8", long, call("bytes", `{}`), "a\uFFFDb", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := tt.registry.Run(t.Context(), "", []protocol.ToolCall{tt.call}, nil)
			want := []tool.Outcome{{Call: tt.call, Result: tool.Result{Text: tt.text, IsError: tt.isError}}}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

func TestParallel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var running, most atomic.Int64
		registry := tool.NewRegistry([]tool.Tool{reader{fake{"pause", func(ctx context.Context, c tool.Call) (string, error) {
			now := running.Add(1)
			defer running.Add(-1)
			for seen := most.Load(); now > seen && !most.CompareAndSwap(seen, now); seen = most.Load() {
			}
			return pause(ctx, c)
		}}}}, tool.Options{Parallel: 3})
		var calls []protocol.ToolCall
		for _, seconds := range []int{5, 4, 3, 2, 1, 1} {
			calls = append(calls, call("pause", fmt.Sprintf(`{"d":"%ds"}`, seconds)))
		}
		var finished recorder
		began := time.Now()
		got := registry.Run(t.Context(), "", calls, &finished)
		for i, outcome := range got {
			if outcome.Call.ID != calls[i].ID || outcome.IsError {
				t.Errorf("outcome %d is %+v", i, outcome)
			}
		}
		// 5, 4 and 3 begin; 2 after 3 s, 1 after 4 s, 1 after 5 s; three end at 5 s.
		if most.Load() != 3 || time.Since(began) != 6*time.Second {
			t.Errorf("%d ran at once, all took %v, want 3 and 6s", most.Load(), time.Since(began))
		}
		slices.Sort(finished[2:5])
		want := recorder{"after 3s", "after 4s", "after 1s", "after 2s", "after 5s", "after 1s"}
		if diff := cmp.Diff(want, finished); diff != "" {
			t.Errorf("finished: -want +got\n%s", diff)
		}
	})
}

// Only reads next to each other overlap. Whatever else is called (a write, a tool that says
// nothing, one with a bad input) has its place in the order of the answer.
func TestOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var steps []string
		step := func(word, name string) {
			mu.Lock()
			defer mu.Unlock()
			steps = append(steps, word+name)
		}
		named := func(name string) fake {
			return fake{name, func(context.Context, tool.Call) (string, error) {
				step("+", name)
				time.Sleep(time.Second) //nolint:forbidigo // time is the bubble's
				step("-", name)
				return "", nil
			}}
		}
		registry := tool.NewRegistry([]tool.Tool{reader{named("r")}, writer{named("w")}, named("x")}, tool.Options{})
		began := time.Now()
		var calls []protocol.ToolCall
		for _, name := range []string{"w", "r", "r", "x", "r", "w", "w", "r"} {
			calls = append(calls, call(name, `{}`))
		}
		calls = append(calls, call("r", `{"bad":1}`), call("nothing", `{}`))
		if got := registry.Run(t.Context(), "", calls, nil); len(got) != len(calls) {
			t.Errorf("%d outcomes, want %d", len(got), len(calls))
		}
		want := "+w -w +r +r -r -r +x -x +r -r +w -w +w -w +r -r +r -r"
		if got := strings.Join(steps, " "); got != want || time.Since(began) != 8*time.Second {
			t.Errorf("got  %s\nwant %s, in %v", got, want, time.Since(began))
		}
	})
}

func TestTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registry := tool.NewRegistry([]tool.Tool{fake{"pause", pause}}, tool.Options{})
		began := time.Now()
		got := registry.Run(t.Context(), "", []protocol.ToolCall{call("pause", `{"d":"1h"}`)}, nil)
		if took := time.Since(began); took != 300*time.Second {
			t.Errorf("took %v, want 300s", took)
		}
		if want := "pause: not done after 5m0s"; got[0].Text != want || !got[0].IsError {
			t.Errorf("outcome %+v, want the error %q", got[0], want)
		}
	})
}

// timed is a tool that takes the time that its input names, and says so.
type timed struct{ fake }

func (timed) TimeLimit(in jsontext.Value) time.Duration {
	d, _ := time.ParseDuration(gjson.GetBytes(in, "d").Str)
	return d
}

// A call may take the time that it names, so that a command of an hour is not ended after
// five minutes; not with a time for all calls, and not for ever.
func TestTimeThatACallNames(t *testing.T) {
	endless := func(ctx context.Context, _ tool.Call) (string, error) {
		<-ctx.Done()
		return "", ctx.Err()
	}
	for name, tt := range map[string]struct {
		limit time.Duration
		run   func(context.Context, tool.Call) (string, error)
		input string
		took  time.Duration
		fails bool
	}{
		"an hour":               {0, pause, `{"d":"1h"}`, time.Hour, false},
		"less than the default": {0, endless, `{"d":"1s"}`, 300 * time.Second, true},
		"no time":               {0, endless, `{"d":"x"}`, 300 * time.Second, true},
		"an hour, and no end":   {0, endless, `{"d":"1h"}`, time.Hour + 5*time.Second, true},
		"a time for all":        {time.Minute, pause, `{"d":"1h"}`, time.Minute, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				registry := tool.NewRegistry([]tool.Tool{timed{fake{"timed", tt.run}}}, tool.Options{Timeout: tt.limit})
				began := time.Now()
				got := registry.Run(t.Context(), "", []protocol.ToolCall{call("timed", tt.input)}, nil)
				if took := time.Since(began); took != tt.took || got[0].IsError != tt.fails {
					t.Errorf("took %v: %+v", took, got[0])
				}
			})
		})
	}
}

// A time for all calls can be changed, for the registries that came of this one as well.
func TestSetTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first := tool.NewRegistry([]tool.Tool{fake{"pause", pause}}, tool.Options{Timeout: time.Minute})
		second := first.Replaced([]tool.Tool{fake{"pause", pause}}, nil)
		for _, limit := range []time.Duration{time.Second, 0} {
			first.SetTimeout(limit)
			want := limit
			if limit == 0 {
				want = 300 * time.Second
			}
			began := time.Now()
			got := second.Run(t.Context(), "", []protocol.ToolCall{call("pause", `{"d":"1h"}`)}, nil)
			if took := time.Since(began); took != want || !got[0].IsError {
				t.Errorf("took %v, want %v: %+v", took, want, got[0])
			}
		}
	})
}

func TestAbort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		free := make(chan struct{})
		registry := tool.NewRegistry([]tool.Tool{
			reader{fake{"pause", pause}},
			reader{fake{"stuck", func(context.Context, tool.Call) (string, error) {
				<-free
				return "at last", nil
			}}},
		}, tool.Options{Parallel: 2})
		ctx, abort := context.WithCancel(t.Context())
		time.AfterFunc(time.Minute, abort)
		began := time.Now()
		got := registry.Run(ctx, "", []protocol.ToolCall{
			call("stuck", `{}`), call("pause", `{"d":"1h"}`), call("pause", `{"d":"2h"}`), call("stuck", `{}`),
		}, nil)
		if took := time.Since(began) - time.Minute; took > 100*time.Millisecond {
			t.Errorf("the abort took %v", took)
		}
		var texts []string
		for _, outcome := range got {
			texts = append(texts, outcome.Text)
		}
		want := []string{
			"stuck: the turn was aborted", "pause: the turn was aborted",
			"pause was not run: the turn was aborted", "stuck was not run: the turn was aborted",
		}
		if diff := cmp.Diff(want, texts); diff != "" {
			t.Errorf("-want +got\n%s", diff)
		}
		if registry.Stuck() != 1 {
			t.Errorf("%d calls are stuck, want 1", registry.Stuck())
		}
		if err := registry.Wait(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("waited for a stuck call: %v", err)
		}
		close(free)
		if err := registry.Wait(t.Context()); err != nil || registry.Stuck() != 0 {
			t.Errorf("%d calls are stuck after their end, error %v", registry.Stuck(), err)
		}
	})
}

// What a call has put out is kept, also if it does not return after an abort, up to a bound.
func TestAbortKeepsWhatAStuckCallPutOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		free := make(chan struct{})
		registry := tool.NewRegistry([]tool.Tool{fake{"stuck", func(_ context.Context, c tool.Call) (string, error) {
			c.Kept.Add([]byte("half of it\n"))
			if string(c.Input) == `{"much":1}` {
				c.Kept.Add(bytes.Repeat([]byte("x"), 1<<20))
			}
			<-free
			return "", nil
		}}}, tool.Options{MaxOutput: 1 << 20})
		for input, want := range map[string]string{`{}`: "half of it\n\n[the turn was aborted]", `{"much":1}`: "x\n[1032203 more bytes are lost]\n[the turn was aborted]"} {
			ctx, abort := context.WithCancel(t.Context())
			time.AfterFunc(time.Minute, abort)
			got := registry.Run(ctx, "", []protocol.ToolCall{call("stuck", input)}, nil)[0]
			if !got.IsError || !strings.HasPrefix(got.Text, "half of it\n") || !strings.HasSuffix(got.Text, want) || len(got.Text) > 17<<10 {
				t.Errorf("%s: %t, %d bytes, %.40q … %.80q", input, got.IsError, len(got.Text), got.Text, got.Text[max(0, len(got.Text)-80):])
			}
		}
		close(free)
		if err := registry.Wait(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// Tools that never return cost a bounded number of goroutines.
func TestStuckBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		free := make(chan struct{})
		registry := tool.NewRegistry([]tool.Tool{fake{"stuck", func(context.Context, tool.Call) (string, error) {
			<-free
			return "", nil
		}}}, tool.Options{Timeout: time.Second, Parallel: 1})
		got := registry.Run(t.Context(), "", slices.Repeat([]protocol.ToolCall{call("stuck", `{}`)}, 20), nil)
		if registry.Stuck() != 16 {
			t.Errorf("%d calls are stuck, want 16", registry.Stuck())
		}
		if want := "stuck was not run: 16 earlier calls hang"; got[16].Text != want {
			t.Errorf("call 17: %q, want %q", got[16].Text, want)
		}
		close(free)
		if err := registry.Wait(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A tool whose time is over may take a while to end what it runs: what that had put out
// is kept, unless the turn is aborted meanwhile, which is through at once.
func TestTimeoutKeepsWhatWasPutOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := fake{"slow", func(ctx context.Context, _ tool.Call) (string, error) {
			<-ctx.Done()
			<-time.After(2 * time.Second)
			return "so far", nil
		}}
		registry := tool.NewRegistry([]tool.Tool{slow}, tool.Options{Timeout: time.Second})
		if got := registry.Run(t.Context(), "", []protocol.ToolCall{call("slow", `{}`)}, nil); got[0].Text != "so far" {
			t.Errorf("after its time: %q", got[0].Text)
		}
		ctx, abort := context.WithCancelCause(t.Context())
		time.AfterFunc(2*time.Second, func() { abort(errors.New("aborted")) })
		began := time.Now()
		got := registry.Run(ctx, "", []protocol.ToolCall{call("slow", `{}`)}, nil)
		if took := time.Since(began); got[0].Text != "slow: the turn was aborted" || took > 2100*time.Millisecond {
			t.Errorf("aborted: %q after %v", got[0].Text, took)
		}
		if err := registry.Wait(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestTwoOfOneName(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("two tools of one name were accepted")
		}
	}()
	tool.NewRegistry([]tool.Tool{fake{name: "a"}, fake{name: "a"}}, tool.Options{})
}

// FuzzOutput: what is given out is UTF-8, a prefix of what the tool gave, and
// bounded.
func FuzzOutput(f *testing.F) {
	f.Add("", 1)
	f.Add("Grüße", 3)
	f.Add("\xff\xfe", 1)
	f.Fuzz(func(t *testing.T, text string, most int) {
		most = min(max(most, 1), 1<<20)
		registry := tool.NewRegistry([]tool.Tool{fake{"t", func(context.Context, tool.Call) (string, error) {
			return text, nil
		}}}, tool.Options{MaxOutput: most})
		got := registry.Run(t.Context(), "", []protocol.ToolCall{call("t", `{}`)}, nil)[0].Text
		clean := strings.ToValidUTF8(text, "\uFFFD")
		if !utf8.ValidString(got) {
			t.Errorf("%q is not UTF-8", got)
		}
		head, _, cut := strings.Cut(got, "\n[cut off here: ")
		if cut && (len(head) > most || !strings.HasPrefix(clean, head)) || !cut && got != clean {
			t.Errorf("%q of %q, at most %d", got, text, most)
		}
	})
}

func ExampleRegistry_Run() {
	greet := fake{"greet", func(context.Context, tool.Call) (string, error) { return "hello", nil }}
	registry := tool.NewRegistry([]tool.Tool{greet}, tool.Options{Timeout: time.Second})
	for _, o := range registry.Run(context.Background(), "", []protocol.ToolCall{call("greet", `{}`), call("wave", `{}`)}, nil) {
		fmt.Println(o.Text, o.IsError)
	}
	// Output:
	// hello false
	// there is no tool "wave" true
}

// What a tool puts out while it runs arrives in its order, before its end.
func TestProgress(t *testing.T) {
	registry := tool.NewRegistry([]tool.Tool{fake{"talk", func(_ context.Context, c tool.Call) (string, error) {
		for _, word := range []string{"a", "b", "c"} {
			if c.Progress != nil {
				c.Progress.Report(word)
			}
		}
		return "end", nil
	}}}, tool.Options{Output: true})
	var heard recorder
	registry.Run(t.Context(), "", []protocol.ToolCall{call("talk", `{}`)}, &heard)
	if diff := cmp.Diff(recorder{"talk a", "talk b", "talk c", "end"}, heard); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	// Without a listener it goes nowhere and waits for nobody.
	if got := registry.Run(t.Context(), "", []protocol.ToolCall{call("talk", `{}`)}, nil)[0]; got.Text != "end" {
		t.Errorf("got %+v", got)
	}
}

func TestGuard(t *testing.T) {
	ran := false
	registry := tool.NewRegistry([]tool.Tool{fake{"do", func(context.Context, tool.Call) (string, error) {
		ran = true
		return "", nil
	}}}, tool.Options{Guard: guard(func(_ context.Context, c tool.Call) (permit permission.Permit, err error) {
		return permit, fmt.Errorf("not allowed with %s", c.Input)
	})})
	got := registry.Run(t.Context(), "", []protocol.ToolCall{call("do", ``)}, nil)[0]
	if want := "do: not allowed with {}"; ran || got.Text != want || !got.IsError {
		t.Errorf("got %+v, ran %t, want the error %q", got, ran, want)
	}
}

// What a tool says of itself begins with its name, and not twice.
func TestErrorsNameTheToolOnce(t *testing.T) {
	for said, want := range map[string]string{
		"it failed":               "do: it failed",
		"do: it failed":           "do: it failed",
		"do is disabled":          "do is disabled",
		"doing that is forbidden": "do: doing that is forbidden",
		"do":                      "do: do",
	} {
		registry := tool.NewRegistry([]tool.Tool{fake{"do", func(context.Context, tool.Call) (string, error) {
			return "", errors.New(said)
		}}}, tool.Options{})
		if got := registry.Run(t.Context(), "", []protocol.ToolCall{call("do", ``)}, nil)[0]; got.Text != want {
			t.Errorf("%q: got %q, want %q", said, got.Text, want)
		}
	}
}

// What the guard permits reaches the tool; a registry that takes
// the place of another counts its stuck calls too.
func TestReplaced(t *testing.T) {
	asks := fake{"ask", func(_ context.Context, c tool.Call) (string, error) { return c.Permit.Policy.Cwd + " " + c.TurnID, nil }}
	first := tool.NewRegistry(nil, tool.Options{})
	second := first.Replaced([]tool.Tool{asks}, guard(func(context.Context, tool.Call) (permission.Permit, error) {
		return permission.Permit{Policy: permission.Policy{Cwd: "/work"}}, nil
	}))
	if len(first.Specs()) != 0 || len(second.Specs()) != 1 {
		t.Errorf("%d and %d tools", len(first.Specs()), len(second.Specs()))
	}
	if got := second.Run(t.Context(), "turn 1", []protocol.ToolCall{call("ask", `{}`)}, nil)[0]; got.Text != "/work turn 1" {
		t.Errorf("got %+v", got)
	}
	synctest.Test(t, func(t *testing.T) {
		free := make(chan struct{})
		first := tool.NewRegistry([]tool.Tool{fake{"hang", func(context.Context, tool.Call) (string, error) { <-free; return "", nil }}}, tool.Options{})
		first.Run(t.Context(), "", []protocol.ToolCall{call("hang", `{}`)}, nil)
		second := first.Replaced(nil, nil)
		if second.Stuck() != 1 {
			t.Errorf("%d are stuck", second.Stuck())
		}
		close(free)
		if err := second.Wait(t.Context()); err != nil || first.Stuck() != 0 {
			t.Errorf("%v, %d are stuck", err, first.Stuck())
		}
	})
}

// A process has one processor but while calls run at once, unless the environment says that
// there are more.
func TestProcessors(t *testing.T) {
	before := runtime.GOMAXPROCS(0)
	defer runtime.GOMAXPROCS(before)
	runtime.SetDefaultGOMAXPROCS()
	all := runtime.GOMAXPROCS(0)
	runtime.GOMAXPROCS(all + 1)
	var p tool.Processors
	var had []int // at each call
	registry := tool.NewRegistry([]tool.Tool{reader{fake{"look", func(context.Context, tool.Call) (string, error) {
		had = append(had, runtime.GOMAXPROCS(0))
		return "", nil
	}}}}, tool.Options{Parallel: 1, Processors: &p})
	one := call("look", `{}`)
	run := func(calls ...protocol.ToolCall) {
		registry.Run(t.Context(), "", calls, nil)
		had = append(had, runtime.GOMAXPROCS(0))
	}
	run(one, one)
	t.Setenv("GOMAXPROCS", "2")
	p.Limit()
	run(one, one)
	t.Setenv("GOMAXPROCS", "")
	p.Limit()
	run()
	run(one)
	run(one, one)
	t.Setenv("GOMAXPROCS", "1")
	p.Limit()
	run(one, one)
	more := all + 1
	if diff := cmp.Diff([]int{more, more, more, more, more, more, 1, 1, 1, all, all, 1, all, all, 1}, had); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// An abort while the guard waits says that the call was not run.
func TestAbortedGuard(t *testing.T) {
	ctx, abort := context.WithCancel(t.Context())
	registry := tool.NewRegistry([]tool.Tool{fake{"do", pause}}, tool.Options{Guard: guard(func(ctx context.Context, _ tool.Call) (permit permission.Permit, err error) {
		abort()
		<-ctx.Done()
		return permit, ctx.Err()
	})})
	if got := registry.Run(ctx, "", []protocol.ToolCall{call("do", `{}`)}, nil)[0]; got.Text != "do was not run: the turn was aborted" || !got.IsError {
		t.Errorf("got %+v", got)
	}
}

// What is too long for a result is kept whole, and the result says where.
func TestSpill(t *testing.T) {
	tools := []tool.Tool{fake{"long", func(context.Context, tool.Call) (string, error) { return strings.Repeat("ä", 10), nil }}}
	for _, tt := range []struct {
		err  error
		want string
	}{
		{nil, "äääääää\n[cut off here: 6 of 20 bytes are missing; the whole is in /kept]"},
		{errors.New("no room"), "äääääää\n[cut off here: 6 of 20 bytes are missing]"},
	} {
		registry := tool.NewRegistry(tools, tool.Options{MaxOutput: 15, Spill: spill(func(name, text string) (string, error) {
			if name != "long" || len(text) != 20 {
				t.Errorf("kept %d bytes of %s", len(text), name)
			}
			return "/kept", tt.err
		})})
		if got := registry.Run(t.Context(), "", []protocol.ToolCall{call("long", `{}`)}, nil)[0].Text; got != tt.want {
			t.Errorf("got %q, want %q", got, tt.want)
		}
	}
}

// notices tells each of its lines once.
type notices struct{ lines []string }

func (n *notices) Notices() (line string) {
	if len(n.lines) > 0 {
		line, n.lines = n.lines[0], n.lines[1:]
	}
	return line
}

// What the model is to know stands at the end of the next result, also of one that failed.
func TestNotices(t *testing.T) {
	r := tool.NewRegistry([]tool.Tool{fake{"a", func(context.Context, tool.Call) (string, error) { return "text\n", nil }}}, tool.Options{Notices: &notices{[]string{"[one]", "[two]"}}})
	var got []string
	for _, o := range r.Run(t.Context(), "", []protocol.ToolCall{{ID: "1", Name: "a"}, {ID: "2", Name: "a", Input: []byte("7")}, {ID: "3", Name: "a"}}, nil) {
		got = append(got, o.Text)
	}
	if diff := cmp.Diff([]string{"text\n[one]", "a: the input is not a JSON object", "text\n[two]"}, got); diff != "" {
		t.Error(diff)
	}
}
