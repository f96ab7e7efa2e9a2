package metrics_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/tidwall/gjson"
	"go.uber.org/goleak"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/metrics"
	"nexus.internal/fixtures"
	"nexus.internal/supervisor"
	"nexus.internal/supervisor/supervisortest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server is a supervisor with n agents, to be measured.
func server(t *testing.T, n int) (*metrics.Metrics, *supervisor.Supervisor) {
	t.Helper()
	sup := supervisor.New(supervisor.Options{Launcher: &supervisortest.Launcher{}})
	running, stop := context.WithCancel(context.Background())
	var work sync.WaitGroup
	work.Go(func() {
		if err := sup.Run(running); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { stop(); work.Wait() })
	for i := range n {
		if _, err := sup.Start(t.Context(), supervisor.Spec{ID: fmt.Sprintf("agent-%04d", i)}); err != nil {
			t.Fatal(err)
		}
	}
	return metrics.New(metrics.Options{Supervisor: sup, Version: "v", Models: modelStats{}, Spares: modelStats{}, Nodes: modelStats{}}), sup
}

type modelStats struct{}

func (modelStats) Spares() (waiting int, used uint64) { return 5, 6 }

func (modelStats) Nodes() api.ListNodesResult {
	return api.ListNodesResult{Cluster: new("farm"), Node: "a", Nodes: []api.NodeInfo{
		{Node: "a", State: "up", Agents: 7, FreeMemoryBytes: new(int64(1 << 20))}, {Node: "b", State: "lost", Agents: 8}, {Node: "c", State: "up"},
	}}
}

func (modelStats) Models() metrics.Models {
	return metrics.Models{Running: 1, Services: []metrics.Service{{
		Provider: "p", Requests: map[string]uint64{"answered": 2}, Tokens: map[string]uint64{"input": 3}, Estimated: 4,
	}}}
}

func scrape(m *metrics.Metrics) string {
	w := httptest.NewRecorder()
	m.ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	return w.Body.String()
}

// whole is a scrape in which every metric has a value.
func whole(t *testing.T) string {
	t.Helper()
	m, _ := server(t, 1)
	m.Call("client", "send", 0, time.Second)
	m.Request("rpc")(200, 1, 2)
	return scrape(m)
}

var typeLine = regexp.MustCompile(`(?m)^# TYPE (\S+) (\S+)$`)

// names are those of the metrics in a scrape, as they can be asked for.
func names(text string) (all []string) {
	for _, m := range typeLine.FindAllStringSubmatch(text, -1) {
		if all = append(all, m[1]); m[2] == "histogram" {
			all = append(all, m[1]+"_bucket", m[1]+"_count", m[1]+"_sum")
		}
	}
	return all
}

// The labels of calls come from fixed sets, whatever is asked for.
func TestLabelsAreBounded(t *testing.T) {
	m, _ := server(t, 0)
	for i := range 1000 {
		m.Call("client", "made-up-"+strconv.Itoa(i), -32601, time.Millisecond)
	}
	m.Call("agent", "send", 0, 2*time.Second)
	var got []string
	for line := range strings.Lines(scrape(m)) {
		if strings.HasPrefix(line, "nexus_rpc_duration_seconds_count") {
			got = append(got, strings.TrimSpace(line))
		}
	}
	want := []string{
		`nexus_rpc_duration_seconds_count{code="-32601",from="client",method="unknown"} 1000`,
		`nexus_rpc_duration_seconds_count{code="ok",from="agent",method="send"} 1`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
}

// However many agents there are, few have metrics of their own, and all are in
// the sums.
func TestAgentsAreBounded(t *testing.T) {
	const agents = metrics.TopAgents + 30
	m, _ := server(t, agents)
	text := scrape(m)
	for _, name := range []string{"nexus_agent_memory_bytes", "nexus_agent_cpu_seconds_total"} {
		if n := strings.Count(text, "\n"+name+"{"); n != metrics.TopAgents {
			t.Errorf("%s of %d agents, want %d", name, n, metrics.TopAgents)
		}
	}
	for _, want := range []string{
		fmt.Sprintf("nexus_agents_memory_bytes %v", float64(agents<<20)), "nexus_agents_memory_max_bytes 1.048576e+06",
		fmt.Sprintf("nexus_agents_cpu_seconds_total %d", agents), fmt.Sprintf(`nexus_agents{state="ready"} %d`, agents),
		`nexus_cluster_machines{state="up"} 2`, `nexus_cluster_machines{state="draining"} 0`, `nexus_cluster_machines{state="lost"} 1`, `nexus_cluster_machines{state="left"} 0`, `nexus_cluster_machines{state="removed"} 0`,
		`nexus_cluster_machine_up{machine="a"} 1`, `nexus_cluster_machine_up{machine="b"} 0`, `nexus_cluster_machine_agents{machine="a"} 7`,
		`nexus_cluster_machine_memory_available_bytes{machine="a"} 1.048576e+06`,
	} {
		if !strings.Contains(text, "\n"+want+"\n") {
			t.Errorf("there is no %s", want)
		}
	}
	if strings.Contains(text, `nexus_cluster_machine_agents{machine="b"}`) {
		t.Error("a machine that is lost is said to have agents")
	}
}

// Time on the processors is a counter: it does not go back when agents end.
func TestCPUGoesOn(t *testing.T) {
	m, sup := server(t, 3)
	const want = "\nnexus_agents_cpu_seconds_total 3\n"
	if !strings.Contains(scrape(m), want) {
		t.Fatalf("there is no %s", want)
	}
	for _, info := range sup.Agents() {
		if err := sup.Remove(t.Context(), info.ID); err != nil {
			t.Fatal(err)
		}
	}
	text := scrape(m)
	if !strings.Contains(text, want) || !strings.Contains(text, "\nnexus_agents_memory_bytes 0\n") {
		t.Error("after the end of all agents their CPU is not what it was, or they have memory")
	}
}

// cmd/OPERATIONS.md names each metric, and none that there is not.
func TestSpecNamesAll(t *testing.T) {
	data, err := os.ReadFile("../../cmd/OPERATIONS.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(data), "### 6.10 Metrics")
	section, _, _ = strings.Cut(section, "\n##")
	told := regexp.MustCompile("`(nexus_[a-z_]+)`").FindAllStringSubmatch(section, -1)
	var got, want []string
	for _, name := range told {
		got = append(got, name[1])
	}
	for _, m := range typeLine.FindAllStringSubmatch(whole(t), -1) {
		if strings.HasPrefix(m[1], "nexus_") {
			want = append(want, m[1])
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("names in cmd/OPERATIONS.md (-there are +told):\n%s", diff)
	}
}

// Each query of the dashboard is about metrics that there are, and each panel has
// a place of its own.
func TestDashboard(t *testing.T) {
	board := fixtures.Read(t, "grafana/nexus.json")
	if !gjson.ValidBytes(board) {
		t.Fatal("the dashboard is no JSON")
	}
	known := names(whole(t))
	metric := regexp.MustCompile(`\b(nexus|go|process)_[a-z_]+`)
	asked := map[string]bool{}
	taken := map[[2]int64]string{}
	panels := gjson.GetBytes(board, "panels").Array()
	for _, panel := range panels {
		title, at := panel.Get("title").Str, panel.Get("gridPos")
		for x := range at.Get("w").Int() {
			for y := range at.Get("h").Int() {
				place := [2]int64{at.Get("x").Int() + x, at.Get("y").Int() + y}
				if other := taken[place]; other != "" || place[0] >= 24 {
					t.Fatalf("panel %q lies over %q", title, other)
				}
				taken[place] = title
			}
		}
		for _, target := range panel.Get("targets").Array() {
			expr := target.Get("expr").Str
			found := metric.FindAllString(expr, -1)
			if len(found) == 0 || strings.Count(expr, "(") != strings.Count(expr, ")") {
				t.Errorf("panel %q asks %s", title, expr)
			}
			for _, name := range found {
				asked[name] = true
				if !slices.Contains(known, name) {
					t.Errorf("panel %q asks for %s, which is no metric", title, name)
				}
			}
		}
	}
	if len(panels) < 15 || len(asked) < 20 {
		t.Errorf("%d panels ask for %d metrics", len(panels), len(asked))
	}
}
