package broker_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tidwall/gjson"
	"golang.org/x/sys/unix"

	"nexus.internal/protocol"
	"nexus.internal/supervisor"
	"nexus.internal/supervisor/broker"
	"nexus.internal/supervisor/store"
)

// segment is where an account is at first, within its agent's records.
const segment = "00000000000000000001.jsonl"

// accountsIn keeps accounts in a directory.
func accountsIn(dir string) broker.Accounts {
	return store.NewLocal(store.Options{Layout: store.Layout{Named: dir, Temp: dir}})
}

// costs answers every request with a usage of 600 tokens.
func costs(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprint(w, `{"usage":{"prompt_tokens":500,"completion_tokens":100,"prompt_tokens_details":{"cached_tokens":50}}}`)
}

func TestBudget(t *testing.T) {
	h := newHouse(t, broker.Options{Limits: broker.Limits{Limits: protocol.Limits{Tokens: 1000}}}, costs)
	socket, _ := h.start(broker.Agent{ID: "a"})
	for range 2 { // the second one is let finish
		if res, answer := h.ask(socket, "{}"); res.StatusCode != 200 {
			t.Fatalf("got %s %s", res.Status, answer)
		}
	}
	res, answer := h.ask(socket, strings.Repeat(" ", 4<<20)) // not read, and answered all the same
	if want := `{"error":{"type":"budget_exceeded","message":"agent a has used 1,200 of its 1,000 tokens: set_limits can raise limits.tokens"}}`; res.StatusCode != 402 || answer != want || res.Header.Get(protocol.BrokerRefusal) == "" {
		t.Errorf("got %s %s, want 402 %s; headers %v", res.Status, answer, want, res.Header)
	}
	if res, answer := h.do(socket, "GET", "/p/models", "", nil); res.StatusCode != 200 {
		t.Errorf("the list of models costs nothing: got %s %s", res.Status, answer)
	}
	want := broker.Usage{Requests: 3, Input: 900, CacheRead: 100, Output: 200}
	if diff := cmp.Diff(want, h.usage("a")); diff != "" {
		t.Errorf("usage (-want +got):\n%s", diff)
	}
	if s := h.Stats(); s.Agents["a"] != want || s.Running != 0 {
		t.Errorf("stats %+v", s)
	}
	// Others have budgets of their own.
	other, _ := h.start(broker.Agent{ID: "b"})
	if res, answer := h.ask(other, "{}"); res.StatusCode != 200 {
		t.Errorf("another agent: got %s %s", res.Status, answer)
	}
}

// Of processes, the tighter limits of an agent and of its creator hold, and go on
// holding when both are gone and only the agent comes back.
func TestProcessLimitsOfTheLine(t *testing.T) {
	dir := t.TempDir()
	o := broker.Options{
		Limits:   broker.Limits{Limits: protocol.Limits{ProcessLimits: supervisor.Limits{OpenFiles: 512}}},
		Accounts: accountsIn(dir),
	}
	boss := supervisor.Limits{MemoryBytes: 1 << 30, Processes: 100, OutputBytesPerSecond: 5, TurnSeconds: 60}
	asked := supervisor.Limits{MemoryBytes: 2 << 30, Processes: 50, CPUSeconds: 9}
	want := map[string]supervisor.Limits{
		"free":   {OpenFiles: 512},
		"boss":   boss,
		"worker": {MemoryBytes: 1 << 30, Processes: 50, CPUSeconds: 9, OutputBytesPerSecond: 5, TurnSeconds: 60},
		"plain":  {MemoryBytes: 1 << 30, Processes: 100, OpenFiles: 512, OutputBytesPerSecond: 5, TurnSeconds: 60},
	}
	check := func(h *house, when string, a broker.Agent) {
		t.Helper()
		l, err := h.Register(a)
		if diff := cmp.Diff(want[a.ID], l.ProcessLimits); diff != "" || err != nil {
			t.Errorf("%s, %s: %v (-want +got):\n%s", a.ID, when, err, diff)
		}
	}
	h := newHouse(t, o, nil)
	check(h, "made", broker.Agent{ID: "free", New: true})
	check(h, "made", broker.Agent{ID: "boss", Limits: &broker.Limits{Limits: protocol.Limits{ProcessLimits: boss}}, New: true})
	check(h, "made", broker.Agent{ID: "worker", Parent: "boss", Limits: &broker.Limits{Limits: protocol.Limits{ProcessLimits: asked}}, New: true})
	check(h, "made", broker.Agent{ID: "plain", Parent: "boss"})
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	h = newHouse(t, o, nil)
	for id := range want {
		check(h, "restored", broker.Agent{ID: id})
	}
	looser := supervisor.Limits{MemoryBytes: 4 << 30, OpenFiles: 64, TurnSeconds: 3600}
	want["boss"] = supervisor.Limits{MemoryBytes: 1 << 30, Processes: 100, OpenFiles: 64, OutputBytesPerSecond: 5, TurnSeconds: 60}
	check(h, "restored with others", broker.Agent{ID: "boss", Limits: &broker.Limits{Limits: protocol.Limits{ProcessLimits: looser}}})
	want["boss"] = supervisor.Limits{OpenFiles: 512}
	check(h, "made anew", broker.Agent{ID: "boss", New: true})
}

// What an agent's own agents use is its too: nobody gets round a budget by
// having others made.
func TestBudgetOfTheLine(t *testing.T) {
	h := newHouse(t, broker.Options{}, costs)
	h.start(broker.Agent{ID: "boss", Limits: &broker.Limits{Limits: protocol.Limits{Tokens: 1000}}})
	h.start(broker.Agent{ID: "middle", Parent: "boss"})
	for i, want := range []int{200, 200, 402} {
		socket, _ := h.start(broker.Agent{ID: fmt.Sprint("worker", i), Parent: "middle"})
		res, answer := h.ask(socket, "{}")
		if res.StatusCode != want {
			t.Errorf("worker %d: got %s %s, want %d", i, res.Status, answer, want)
		}
		if want == 402 && !strings.Contains(answer, "agent boss has used 1,200 of its 1,000 tokens") {
			t.Errorf("got %s", answer)
		}
	}
	if u := h.usage("boss"); u.Tokens() != 0 {
		t.Errorf("it used nothing itself: %+v", u)
	}
	// Who comes back counts for those above it by the names that they have now.
	h.start(broker.Agent{ID: "chief", Limits: &broker.Limits{Limits: protocol.Limits{Tokens: 1}}})
	first, _ := h.start(broker.Agent{ID: "back0", Parent: "middle", Ancestors: []string{"chief"}})
	second, _ := h.start(broker.Agent{ID: "back1", Parent: "middle"})
	if res, answer := h.ask(first, "{}"); res.StatusCode != 200 {
		t.Errorf("got %s %s", res.Status, answer)
	}
	if res, answer := h.ask(second, "{}"); res.StatusCode != 402 || !strings.Contains(answer, "agent chief has used") {
		t.Errorf("above the one above: got %s %s", res.Status, answer)
	}
	// A circle of names that were used again ends somewhere.
	if _, err := h.Register(broker.Agent{ID: "boss", Parent: "worker0"}); err != nil {
		t.Fatal(err)
	}
	socket, _ := h.start(broker.Agent{ID: "last", Parent: "worker0"})
	if res, _ := h.ask(socket, "{}"); res.StatusCode != 402 {
		t.Errorf("in a circle: got %s", res.Status)
	}
}

func TestRates(t *testing.T) {
	tests := []struct {
		name   string
		limits broker.Limits
		passes int // requests before one is refused
		text   string
		retry  int // seconds, about
	}{
		{"requests", broker.Limits{Limits: protocol.Limits{RequestsPerMinute: 3}}, 3, "agent a may make 3 requests a minute; try again in ", 20},
		{"tokens", broker.Limits{Limits: protocol.Limits{TokensPerMinute: 1200}}, 2, "agent a may use 1,200 tokens a minute; try again in ", 1},
		{"tokens beyond what is left", broker.Limits{Limits: protocol.Limits{TokensPerMinute: 900}}, 2, "agent a may use 900 tokens a minute; try again in ", 21},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := newHouse(t, broker.Options{}, costs)
			socket, _ := h.start(broker.Agent{ID: "a", Limits: &tt.limits})
			for i := range tt.passes {
				if res, answer := h.ask(socket, "{}"); res.StatusCode != 200 {
					t.Fatalf("request %d: got %s %s", i, res.Status, answer)
				}
			}
			res, answer := h.ask(socket, "{}")
			if gjson.Get(answer, "error.type").Str != "rate_limit_exceeded" || !strings.Contains(answer, tt.text) || res.StatusCode != 429 {
				t.Fatalf("got %s %s", res.Status, answer)
			}
			retry, err := strconv.Atoi(res.Header.Get("Retry-After"))
			if err != nil || retry < 1 || retry > tt.retry {
				t.Errorf("Retry-After %q, want at most %d", res.Header.Get("Retry-After"), tt.retry)
			}
		})
	}
}

func TestConcurrent(t *testing.T) {
	arrived, leave := make(chan struct{}, 2), make(chan struct{})
	h := newHouse(t, broker.Options{}, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // or else nobody sees that the asker leaves
		arrived <- struct{}{}
		select {
		case <-leave:
		case <-r.Context().Done():
		}
	})
	socket, _ := h.start(broker.Agent{ID: "a", Limits: &broker.Limits{Concurrent: 1}})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	first, second := make(chan string, 1), make(chan string, 1)
	go func() { first <- post(ctx, socket) }()
	select {
	case <-arrived:
	case got := <-first:
		t.Fatalf("the first one: %s", got)
	}
	go func() { second <- post(ctx, socket) }()
	select {
	case <-arrived:
		t.Error("a second one is under way")
	case got := <-second:
		if !strings.HasPrefix(got, "429 ") || !strings.Contains(got, "agent a may have 1 requests under way at once; try again in 1 s") {
			t.Errorf("got %s", got)
		}
	}
	close(leave)
	if got := <-first; got != "200 OK" {
		t.Errorf("the first one: %s", got)
	}
	if got := post(ctx, socket); got != "200 OK" {
		t.Errorf("after it: %s", got)
	}
}

// All agents share one pool, and none waits there for another's answer: more
// ask at once than connections are kept, and no answer comes before all have.
func TestManyAtOnce(t *testing.T) {
	const many = 80
	arrived, leave := make(chan struct{}, many), make(chan struct{})
	h := newHouse(t, broker.Options{}, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // or else nobody sees that the asker leaves
		arrived <- struct{}{}
		select {
		case <-leave:
		case <-r.Context().Done():
		}
	})
	a, _ := h.start(broker.Agent{ID: "a"}) // one alone may not have as many
	b, _ := h.start(broker.Agent{ID: "b"})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	got := make(chan string, many)
	for range many / 2 {
		go func() { got <- post(ctx, a) }()
		go func() { got <- post(ctx, b) }()
	}
	for range many {
		select {
		case <-arrived:
		case <-ctx.Done():
		}
	}
	if n := len(got); n > 0 {
		t.Errorf("%d of %d have an answer before all have asked", n, many)
	}
	close(leave)
	failed := map[string]int{}
	for range many {
		if status := <-got; status != "200 OK" {
			failed[status]++
		}
	}
	if len(failed) > 0 {
		t.Errorf("not all reach the service at once: %v", failed)
	}
}

// What was used, and an agent's own limits, outlive the process, the account in
// memory and the server, and end with the agent's life.
func TestTotalsAreKept(t *testing.T) {
	dir := t.TempDir()
	o := broker.Options{
		Limits:   broker.Limits{Limits: protocol.Limits{Tokens: 5000}},
		Accounts: accountsIn(dir),
	}
	h := newHouse(t, o, costs)
	socket, end := h.start(broker.Agent{ID: "a", Limits: &broker.Limits{Limits: protocol.Limits{Tokens: 1000}}})
	h.start(broker.Agent{ID: "b", Parent: "a"})
	h.ask(socket, "{}")
	end()
	want := broker.Usage{Requests: 1, Input: 450, CacheRead: 50, Output: 100}
	if info, err := os.Stat(filepath.Join(dir, "a.records", segment)); err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("the file: %v, %v", info, err)
	}
	h.start(broker.Agent{ID: "c"}) // forgets what nobody needs

	h.start(broker.Agent{ID: "a"}) // the next incarnation
	if got := h.usage("a"); got != want {
		t.Errorf("after a restart of the child: %+v", got)
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}

	o.Providers = nil
	later := newHouse(t, o, costs)
	socket, _ = later.start(broker.Agent{ID: "b"}) // its parent's limits still hold
	if res, answer := later.ask(socket, "{}"); res.StatusCode != 200 {
		t.Fatalf("got %s %s", res.Status, answer)
	}
	socket, end = later.start(broker.Agent{ID: "a"})
	if got := later.usage("a"); got != want {
		t.Errorf("after a restart of the server: %+v", got)
	}
	if res, answer := later.ask(socket, "{}"); res.StatusCode != 402 || !strings.Contains(answer, "1,200 of its 1,000") {
		t.Errorf("got %s %s", res.Status, answer)
	}
	end()
	socket, end = later.start(broker.Agent{ID: "a", Limits: &broker.Limits{Limits: protocol.Limits{Tokens: 100_000}, Concurrent: 3}}) // more than it had
	if res, answer := later.ask(socket, "{}"); res.StatusCode != 402 || !strings.Contains(answer, "1,200 of its 1,000") {
		t.Errorf("with more than before: got %s %s", res.Status, answer)
	}
	end()
	socket, _ = later.start(broker.Agent{ID: "a", New: true})
	if res, answer := later.ask(socket, "{}"); res.StatusCode != 200 {
		t.Errorf("another agent of that name: got %s %s", res.Status, answer)
	}
}

// Limits that are raised hold at once, and after a restart; those of processes from the
// next launch on, also for agents that share them.
func TestSetLimits(t *testing.T) {
	dir := t.TempDir()
	o := broker.Options{Accounts: accountsIn(dir)}
	h := newHouse(t, o, costs)
	socket, end := h.start(broker.Agent{ID: "a", Limits: &broker.Limits{Limits: protocol.Limits{Tokens: 500, ProcessLimits: supervisor.Limits{Processes: 5}}}})
	if _, err := h.Register(broker.Agent{ID: "b", Parent: "a"}); err != nil {
		t.Fatal(err)
	}
	h.ask(socket, "{}")
	if res, _ := h.ask(socket, "{}"); res.StatusCode != 402 {
		t.Fatalf("got %s", res.Status)
	}
	held, err := h.AgentLimits("a")
	if want := (broker.AgentLimits{Limits: broker.Limits{Limits: protocol.Limits{Tokens: 500, ProcessLimits: supervisor.Limits{Processes: 5}}}, Spent: 600}); err != nil || held != want {
		t.Errorf("held %+v, %v, want %+v", held, err, want)
	}
	raised := broker.Limits{Limits: protocol.Limits{Tokens: 5000, ProcessLimits: supervisor.Limits{Processes: 9}}}
	if err := h.SetLimits("a", raised); err != nil {
		t.Fatal(err)
	}
	if res, answer := h.ask(socket, "{}"); res.StatusCode != 200 {
		t.Errorf("got %s %s", res.Status, answer)
	}
	if held, err := h.AgentLimits("b"); err != nil || held.Outer == nil || *held.Outer != raised || held.Limits.Processes != 5 {
		t.Errorf("below it: %+v, %v", held, err)
	}
	var launched supervisor.Spec
	conn, err := h.Launcher(noting{func() (int, error) { return os.Getpid(), nil }, &launched}).Launch(t.Context(), supervisor.Spec{
		ID: "b", Shares: []supervisor.Share{{Agent: "a", Limits: supervisor.Limits{Processes: 5}}},
	}, true)
	if err != nil {
		t.Fatal(err)
	}
	conn.Stop(t.Context())
	if want := []supervisor.Share{{Agent: "a", Limits: raised.ProcessLimits}}; !cmp.Equal(launched.Shares, want) {
		t.Errorf("launched within %+v, want %+v", launched.Shares, want)
	}
	end()
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}

	o.Providers = nil
	later := newHouse(t, o, costs)
	if held, err := later.AgentLimits("a"); err != nil || held.Limits != raised || held.Spent != 1200 {
		t.Errorf("after a restart: %+v, %v", held, err)
	}
	records := filepath.Join(dir, "a.records")
	if err := errors.Join(os.RemoveAll(records), os.WriteFile(records, nil, 0o600)); err != nil { // nothing can be saved there
		t.Fatal(err)
	}
	if err := later.SetLimits("a", broker.Limits{Limits: protocol.Limits{Tokens: 1}}); err == nil {
		t.Error("limits that cannot be saved are set")
	}
	if held, err := later.AgentLimits("a"); err != nil || held.Limits != raised {
		t.Errorf("after limits that could not be saved: %+v, %v", held, err)
	}
}

// An agent whose limits cannot be read does not start, nor does one that it made: they
// would have fewer. What is there stays as it is, and once it is put right all is well. A pipe
// in its place held up all agents.
func TestDamagedFile(t *testing.T) {
	things := map[string]func(file string) error{
		"pipe":      func(file string) error { return unix.Mkfifo(file, 0o600) },
		"link":      func(file string) error { return os.Symlink("/dev/null", file) },
		"directory": func(file string) error { return os.Mkdir(file, 0o700) },
	}
	content := func(text string) func(string) error {
		return func(file string) error { return os.WriteFile(file, []byte(text), 0o600) }
	}
	for _, text := range []string{"{", `{"spent_tokens":-1}`, "\x00\x01", `{"parent":"` + strings.Repeat("p", 64<<10) + `"}`} {
		things[fmt.Sprintf("%.20q", text)] = content(text)
	}
	limits := &store.Limits{Tokens: 100}
	for name, put := range things {
		for _, place := range []string{"a.usage", "a.records/" + segment} {
			t.Run(place+" "+name, func(t *testing.T) {
				dir := t.TempDir()
				file := filepath.Join(dir, place)
				accounts := accountsIn(dir)
				right := func() error { return accounts.SetAccount("a", &store.Account{Limits: limits, Spent: 100}) }
				made := right()
				if place == "a.usage" {
					made = os.RemoveAll(filepath.Join(dir, "a.records"))
				}
				if err := errors.Join(made, os.RemoveAll(file), put(file)); err != nil {
					t.Fatal(err)
				}
				before, err := os.Lstat(file)
				if err != nil {
					t.Fatal(err)
				}
				h := newHouse(t, broker.Options{Accounts: accountsIn(dir)}, costs)
				for _, a := range []broker.Agent{{ID: "a"}, {ID: "a", Limits: &broker.Limits{Limits: protocol.Limits{Tokens: 5}}}, {ID: "b", Parent: "a", New: true}, {ID: "c", Parent: "x", Ancestors: []string{"a"}}} {
					_, err := h.Register(a)
					if e, ok := errors.AsType[*store.DamagedError](err); !ok || e.Agent != "a" || e.Place != file {
						t.Errorf("register %+v: %v", a, err)
					}
				}
				h.start(broker.Agent{ID: "other"})
				if after, err := os.Lstat(file); err != nil || !os.SameFile(before, after) || before.Size() != after.Size() {
					t.Errorf("the file was changed: %v, %v", after, err)
				}
				if err := errors.Join(os.RemoveAll(filepath.Join(dir, strings.Split(place, "/")[0])), right()); err != nil {
					t.Fatal(err)
				}
				socket, _ := h.start(broker.Agent{ID: "a"})
				if res, answer := h.ask(socket, "{}"); res.StatusCode != http.StatusPaymentRequired {
					t.Errorf("got %s %s", res.Status, answer)
				}
			})
		}
	}
}

// What the system says of other things than the file is no damage.
func TestUsageCannotBeReadNow(t *testing.T) {
	name := strings.Repeat("long", 1000) // for a file's name
	h := newHouse(t, broker.Options{Accounts: accountsIn(filepath.Join(t.TempDir(), name))}, costs)
	_, err := h.Register(broker.Agent{ID: "a"})
	if _, ok := errors.AsType[*supervisor.StartError](err); !ok {
		t.Errorf("got %v", err)
	}
}

// An answer that broke off is counted by its bytes, and breaks off for the
// child as well.
func TestCutOffAnswerCosts(t *testing.T) {
	h := newHouse(t, broker.Options{}, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for range 100 {
			fmt.Fprint(w, `data: {"choices":[{"delta":{"content":"four"}}]}`+"\n\n")
		}
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	})
	socket, _ := h.start(broker.Agent{ID: "a"})
	res, err := client(socket).Post("http://broker/p/chat/completions", "", strings.NewReader("{}"+strings.Repeat(" ", 398)))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if _, err := io.Copy(io.Discard, res.Body); err == nil {
		t.Error("the answer seems whole")
	}
	if err := h.Close(); err != nil { // which waits for the request to be accounted for
		t.Fatal(err)
	}
	if got, want := h.usage("a"), (broker.Usage{Requests: 1, Estimated: 1, Input: 100, Output: 100}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// A web page is no answer, and costs nothing; JSON costs as a stream does.
func TestAnswersByForm(t *testing.T) {
	for name, tt := range map[string]struct {
		media, answer string
		want          broker.Traffic
	}{
		"HTML":                   {"text/html; charset=utf-8", "<html>hi</html>", broker.Traffic{Failed: 1, Used: broker.Usage{Requests: 1}}},
		"JSON without usage":     {"application/json", `{"choices":[{"message":{"content":"hi"}}]}`, broker.Traffic{Answered: 1, Used: broker.Usage{Requests: 1, Estimated: 1, Input: 1, Output: 1}}},
		"JSON, OpenAI's usage":   {"application/json", `{"usage":{"prompt_tokens":700,"completion_tokens":30}}`, broker.Traffic{Answered: 1, Used: broker.Usage{Requests: 1, Input: 700, Output: 30}}},
		"JSON, Anthropic's":      {"application/json", `{"usage":{"input_tokens":700,"output_tokens":30}}`, broker.Traffic{Answered: 1, Used: broker.Usage{Requests: 1, Input: 700, Output: 30}}},
		"a stream by other name": {"text/plain", "data: {\"choices\":[{\"delta\":{\"content\":\"four\"}}]}\n\n", broker.Traffic{Failed: 1, Used: broker.Usage{Requests: 1, Estimated: 1, Input: 1, Output: 1}}},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t, broker.Options{}, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", tt.media)
				fmt.Fprint(w, tt.answer)
			})
			socket, _ := h.start(broker.Agent{ID: "a"})
			h.ask(socket, "{}")
			if err := h.Close(); err != nil { // which waits for the request to be accounted for
				t.Fatal(err)
			}
			if got := h.Stats().Providers["p"]; got != tt.want {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
}

// An agent whose saved session has become another's is held to what that one
// used; one that runs is not forgotten.
func TestForget(t *testing.T) {
	dir := t.TempDir()
	o := broker.Options{Accounts: accountsIn(dir)}
	h := newHouse(t, o, costs)
	limits := &broker.Limits{Limits: protocol.Limits{Tokens: 1000, RequestsPerMinute: 100}}
	socket, end := h.start(broker.Agent{ID: "spent", Limits: &broker.Limits{Limits: protocol.Limits{Tokens: 100}}})
	h.ask(socket, "{}")
	end()
	socket, end = h.start(broker.Agent{ID: "rich", Limits: limits})
	h.ask(socket, "{}") // its bucket is not full, so that it is kept
	h.Forget("rich")
	if h.usage("rich") == (broker.Usage{}) {
		t.Error("an agent that runs was forgotten")
	}
	end()
	h.Forget("spent")
	kept := o.Accounts.(*store.Local)
	if err := errors.Join(kept.Delete("rich"), kept.Rename("spent", "rich")); err != nil {
		t.Fatal(err)
	}
	h.Forget("rich")
	socket, _ = h.start(broker.Agent{ID: "rich"})
	if res, answer := h.ask(socket, "{}"); res.StatusCode != 402 || !strings.Contains(answer, "of its 100") {
		t.Errorf("got %s %s, want what the other one may", res.Status, answer)
	}
}

// An agent shares the limits of all that it comes from, also where these do not run.
func TestAbove(t *testing.T) {
	h := newHouse(t, broker.Options{Limits: broker.Limits{Limits: protocol.Limits{ProcessLimits: supervisor.Limits{MemoryBytes: 1000}}}}, nil)
	register := func(a broker.Agent) {
		t.Helper()
		if _, err := h.Register(a); err != nil {
			t.Fatal(err)
		}
	}
	register(broker.Agent{ID: "boss", New: true, Limits: &broker.Limits{Limits: protocol.Limits{ProcessLimits: supervisor.Limits{MemoryBytes: 500, Processes: 9}}}})
	register(broker.Agent{ID: "middle", Parent: "boss", New: true})
	register(broker.Agent{ID: "below", Parent: "middle", New: true})
	want := []supervisor.Share{
		{Agent: "middle", Limits: supervisor.Limits{MemoryBytes: 500, Processes: 9}}, {Agent: "boss", Limits: supervisor.Limits{MemoryBytes: 500, Processes: 9}},
	}
	if diff := cmp.Diff(want, h.Shares("below")); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if above := h.Shares("boss"); above != nil {
		t.Errorf("above the first: %+v", above)
	}
}
