package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == roleArg {
		os.Exit(play(os.Args[2:]))
	}
	os.Exit(m.Run())
}

// newBench has the bare process built, and none of nexus.
func newBench(t *testing.T) *bench {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{bin: t.TempDir(), self: self, dir: t.TempDir(), size: rough, progress: io.Discard}
	if _, err := os.ReadFile("floor/main.go"); err != nil { // so that the test cache knows of it
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", b.floor(), "./floor").CombinedOutput(); err != nil {
		t.Fatalf("build the bare process: %v\n%s", err, out)
	}
	return b
}

// Every floor is a figure of real processes: none may come out as nothing.
func TestFloors(t *testing.T) {
	b, ctx := newBench(t), t.Context()
	http, err := b.startHTTPEcho(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer http.close()
	file, err := os.Create(filepath.Join(b.dir, "append"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	steps := map[string]step{
		"http echo": func() (float64, error) { return p50(ctx, 8, func() error { return http.post(ctx, 0) }) },
		"http echoes a second": func() (float64, error) {
			return perSecond(ctx, rateAgents, 2, func(i int) error { return http.post(ctx, i) })
		},
		"idle connection": func() (float64, error) {
			return idleCost(http.process.cmd.Process.Pid, 500, http.url, "POST /0", "")
		},
		"fork-exec": b.forkExec(ctx),
		"lines":     b.linesPerSecond(ctx, 500),
		"fdatasync": fdatasyncs(ctx, file, 4, func() error { return nil }),
	}
	for name, take := range steps {
		if got, err := take(); err != nil || got <= 0 {
			t.Errorf("floor %s is %v, %v", name, got, err)
		}
	}
}

// What processes cost is counted of those that are told, by how often something was done.
func TestSpending(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Log("measured on Linux only")
		return
	}
	b, ctx := newBench(t), t.Context()
	http, err := b.startHTTPEcho(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer http.close()
	server := http.process.cmd.Process.Pid
	echoes, err := childrenOf(server)
	if err != nil || len(echoes) != rateAgents {
		t.Fatalf("children %v, %v", echoes, err)
	}
	const n = 200
	woken, err := wakeUpsOf(echoes[0])
	if err != nil {
		t.Fatal(err)
	}
	got, err := spending(n, func() error {
		_, err := times(ctx, n, func() error { return http.post(ctx, 0) })
		return err
	}, server, echoes[0], echoes[1])
	if err != nil {
		t.Fatal(err)
	}
	for i, used := range got {
		asked, told := i < 2, used.processor > 1e-6 && used.processor < 1
		if asked != told || used.calls != 0 && asked != (used.calls >= 2) {
			t.Errorf("process %d of server, asked and other: %+v for each request", i, used)
		}
	}
	if now, err := wakeUpsOf(echoes[0]); err != nil || now < woken+n/2 {
		t.Errorf("%v wake-ups before %d requests, %v after, %v", woken, n, now, err)
	}
}

// The floor of a send gives back what it was sent, through both its processes.
func TestHTTPEcho(t *testing.T) {
	b, ctx := newBench(t), t.Context()
	http, err := b.startHTTPEcho(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer http.close()
	got, err := post(ctx, http.client, http.url+"/1", "", echoBody)
	if err != nil || string(got) != echoBody+"\n" {
		t.Errorf("echo is %q, %v, want what was sent", got, err)
	}
	if _, err := post(ctx, http.client, http.url+"/16", "", echoBody); err == nil {
		t.Error("there is a 17th echo process")
	}
}

// What is written as a line without an end has none, and comes only when asked.
func TestEndlessFloor(t *testing.T) {
	b := newBench(t)
	cmd := exec.CommandContext(t.Context(), b.floor(), "endless", "131072")
	cmd.Stdin = strings.NewReader("x")
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	first, rest, _ := bytes.Cut(out, []byte("\n"))
	if !bytes.Contains(first, []byte(`"type":"ready"`)) || len(rest) != 131072 || bytes.Contains(rest, []byte("\n")) {
		t.Errorf("first line %q, then %d bytes", first, len(rest))
	}
	if out, err := exec.CommandContext(t.Context(), b.floor(), "endless", "131072").Output(); err != nil || !bytes.HasSuffix(out, []byte("}\n")) {
		t.Errorf("unasked it wrote %d bytes, %v", len(out), err)
	}
}

// What the bare process linked would be in every ratio.
func TestFloorIsBare(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "./floor").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, pkg := range strings.Fields(string(out)) {
		if pkg == "fmt" || pkg == "net" || strings.Contains(pkg, ".") && !strings.HasSuffix(pkg, "cmd/nexus-bench/floor") {
			t.Errorf("the bare process links %s", pkg)
		}
	}
}

func TestMedian(t *testing.T) {
	for _, tt := range []struct {
		values []float64
		want   float64
	}{
		{nil, 0}, {[]float64{7}, 7}, {[]float64{9, 1, 5}, 5}, {[]float64{4, 1, 9, 2}, 3},
	} {
		before := fmt.Sprint(tt.values)
		if got := median(tt.values); got != tt.want || fmt.Sprint(tt.values) != before {
			t.Errorf("median of %s is %v and leaves %v, want %v", before, got, tt.values, tt.want)
		}
	}
}

func TestP99(t *testing.T) {
	hundred := make([]float64, 100)
	for i := range hundred {
		hundred[i] = float64(100 - i)
	}
	for _, tt := range []struct {
		values []float64
		want   float64
	}{
		{nil, 0}, {[]float64{7}, 7}, {hundred[1:], 99}, {hundred, 99}, {append(hundred, 101), 100},
	} {
		if got := p99(tt.values); got != tt.want {
			t.Errorf("p99 of %d values is %v, want %v", len(tt.values), got, tt.want)
		}
	}
}

// Figures are taken in turns; the first round is for warming up.
func TestInTurns(t *testing.T) {
	var order []string
	take := func(name string, values ...float64) step {
		return func() (float64, error) {
			order = append(order, name)
			value := values[0]
			values = values[1:]
			return value, nil
		}
	}
	floor, taken := of(take("floor", 99, 1, 3, 2)), of(take("figure", 99, 30, 20, 40))
	got, err := measure(t.Context(), 3, figure{"p50", taken, floor, "a", count, bound{}, p50th}, figure{"p99", taken, floor, "b", count, bound{}, p99th})
	if err != nil {
		t.Fatal(err)
	}
	want := []row{{"p50", 30, 2, "a", count, bound{}}, {"p99", 40, 3, "b", count, bound{}}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(row{}, bound{})); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff("floor figure floor figure floor figure floor figure", strings.Join(order, " ")); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
}

func TestInTurnsEndsEarly(t *testing.T) {
	broken := errors.New("broken")
	if err := inTurns(t.Context(), 3, of(func() (float64, error) { return 0, broken })); !errors.Is(err, broken) {
		t.Errorf("error is %v, want that of the step", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	taken := 0
	err := inTurns(ctx, 3, of(func() (float64, error) {
		taken++
		cancel()
		return 1, nil
	}))
	if !errors.Is(err, context.Canceled) || taken != 1 {
		t.Errorf("error is %v after %d figures, want the end of the context after 1", err, taken)
	}
}

// A figure on the wrong side of its bound says so.
func TestRender(t *testing.T) {
	tests := []struct {
		name string
		row  row
		want string
	}{
		{"within an upper bound", row{"f", 2, 1, "floor", perSec, ratioAtMost(2.5)}, "f 2/s 1/s floor 2 ≤ 2.5 × within"},
		{"over it", row{"f", 3, 1, "floor", perSec, ratioAtMost(2.5)}, "f 3/s 1/s floor 3 ≤ 2.5 × over"},
		{"within a lower bound", row{"f", 50, 100, "floor", perSec, ratioAtLeast(0.5)}, "f 50/s 100/s floor 0.5 ≥ 0.5 × within"},
		{"under it", row{"f", 49, 100, "floor", perSec, ratioAtLeast(0.5)}, "f 49/s 100/s floor 0.49 ≥ 0.5 × under"},
		{"within a bound of its own", row{"f", 0.009, 0.001, "floor", seconds, atMost(0.01)}, "f 9 ms 1 ms floor 9 ≤ 10 ms within"},
		{"over a bound of its own, no floor", row{"f", 3 << 20, 0, "", size, atMost(2 << 20)}, "f 3 MiB ≤ 2 MiB over"},
		{"not measured", row{"f", math.NaN(), 0, "no room", count, bound{}}, "f - no room"},
		{"no bound", row{"f", 10e-6, 20e-6, "floor", seconds, bound{}}, "f 10 µs 20 µs floor 0.5"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var out strings.Builder
			if err := render(&out, []row{tt.row}); err != nil {
				t.Fatal(err)
			}
			line := strings.Join(strings.Fields(strings.Split(out.String(), "\n")[1]), " ")
			if diff := cmp.Diff(tt.want, line); diff != "" {
				t.Errorf("line (-want +got):\n%s", diff)
			}
		})
	}
}

func TestParsePSS(t *testing.T) {
	got, err := parsePSS([]byte("55d0-7ffe ---p 0 00:00 0 [rollup]\nRss:  2000 kB\nPss:   1792 kB\nPss_Dirty: 9 kB\n"))
	if err != nil || got != 1792<<10 {
		t.Errorf("PSS is %d, %v", got, err)
	}
	if _, err := parsePSS([]byte("Rss: 1 kB\n")); !errors.Is(err, errNoPSS) {
		t.Errorf("error without PSS is %v", err)
	}
}

// A command line that cannot be meant is told before anything is looked for.
func TestUsage(t *testing.T) {
	for _, test := range []struct {
		args []string
		say  string
	}{
		{[]string{"-only", "on the moon"}, "nexus-bench: nothing is called \"on the moon\"; there are: sends, "},
		{[]string{"-agents", "-1"}, "nexus-bench: -agents must be from 0 on, not -1\n"},
		{[]string{"-only", ""}, "nexus-bench: -only is empty\n"},
		{[]string{"-only", "sends", "-svg", "f"}, "nexus-bench: -svg needs the figures of scale, and -only sends leaves them out\n"},
		{[]string{"fairness"}, "nexus-bench: unexpected argument \"fairness\""},
		{[]string{"-nonsense"}, "flag provided but not defined: -nonsense\n"},
	} {
		var out, errs strings.Builder
		status := run(append([]string{"-bin", t.TempDir()}, test.args...), &out, &errs)
		if status != 2 || out.Len() > 0 || !strings.HasPrefix(errs.String(), test.say) {
			t.Errorf("%v: status %d, %q, want 2 and %q", test.args, status, errs.String(), test.say)
		}
	}
}

// Of the figures, some can be asked for.
func TestOnly(t *testing.T) {
	ended, end := context.WithCancel(t.Context())
	end()
	b := &bench{only: "fairness", progress: io.Discard}
	if _, err := b.measure(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("error is %v, want the end of the context", err)
	}
}

// A missing program is said before anything is measured.
func TestReportWithoutFloor(t *testing.T) {
	b := &bench{bin: t.TempDir(), size: rough, progress: io.Discard}
	if err := report(t.Context(), io.Discard, b); err == nil || !strings.Contains(err.Error(), "make bench") {
		t.Errorf("error is %v, want one that says what to do", err)
	}
}
