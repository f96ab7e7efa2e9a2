package metrics

import (
	"cmp"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"nexus.internal/protocol"
	"nexus.internal/supervisor"
)

// TopAgents is how many agents are listed one by one: those whose processes have
// the most memory. All together are in the sums.
const TopAgents = 50

// sampler collects what others count, at the moment of a scrape.
type sampler struct {
	o     Options
	build prometheus.Metric

	mu  sync.Mutex    // guards cpu
	cpu time.Duration // the most that was seen: a process that ends meanwhile is missed for a moment
}

func newSampler(o Options) *sampler {
	build := prometheus.NewDesc("nexus_build_info", "1, with the versions of the server and of its protocol.", []string{"version", "protocol"}, nil)
	return &sampler{
		o:     o,
		build: prometheus.MustNewConstMetric(build, prometheus.GaugeValue, 1, o.Version, strconv.Itoa(protocol.Version)),
	}
}

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

var (
	agents        = desc("nexus_agents", "Agents by state.", "state")
	queued        = desc("nexus_sends_waiting", "Sends that wait in the queues of all agents.")
	sends         = desc("nexus_sends_total", "Sends accepted, repeated ones not counted.")
	repeats       = desc("nexus_sends_repeated_total", "Sends whose request_id was known: answered with the outcome of the first.")
	retries       = desc("nexus_turns_retried_total", "Turns that were sent to their agent once more after a crash.")
	turns         = desc("nexus_turns_total", "Turns that ended, by outcome.", "outcome")
	launches      = desc("nexus_launches_total", "Processes of agents that became ready.")
	launchTook    = desc("nexus_launch_seconds", "Starts of agents' processes that succeeded, until they were ready.")
	unlaunched    = desc("nexus_launch_failures_total", "Processes of agents that did not become ready.")
	spares        = desc("nexus_spares", "Processes that wait to become an agent.")
	spent         = desc("nexus_spares_used_total", "Processes that waited and became an agent.")
	machines      = desc("nexus_cluster_machines", "Machines that the server knows, itself among them, by state.", "state")
	machineUp     = desc("nexus_cluster_machine_up", "Whether a machine of the cluster is up or draining (1), or lost or left (0), as this server knows.", "machine")
	machineAgents = desc("nexus_cluster_machine_agents", "Agents of a machine of the cluster, as it says itself.", "machine")
	machineFree   = desc("nexus_cluster_machine_memory_available_bytes", "Memory that a machine of the cluster has left, as it says itself.", "machine")

	crashes  = desc("nexus_crashes_total", "Crashes of agents, by cause.", "reason")
	restarts = desc("nexus_restarts_total", "Restarts of agents after a crash that succeeded, by the cause of the crash.", "reason")
	events   = desc("nexus_events_total", "Events of all agents.")
	dropped  = desc("nexus_event_subscribers_dropped_total", "Subscribers that were too slow.")

	cpu       = desc("nexus_agents_cpu_seconds_total", "Time on the processors of all agents' processes.")
	memory    = desc("nexus_agents_memory_bytes", "Memory of all agents' processes, shared pages counted for each.")
	largest   = desc("nexus_agents_memory_max_bytes", "Memory of the agent's process that has the most.")
	oneCPU    = desc("nexus_agent_cpu_seconds_total", "Time on the processors of an agent's process, for the agents with the most memory.", "agent")
	oneMemory = desc("nexus_agent_memory_bytes", "Memory of an agent's process, for the agents with the most.", "agent")

	modelsRunning  = desc("nexus_model_requests_running", "Requests to models under way.")
	modelRequests  = desc("nexus_model_requests_total", "Requests to models, by what became of them.", "provider", "result")
	modelTokens    = desc("nexus_model_tokens_total", "Tokens of models, by kind.", "provider", "kind")
	modelCost      = desc("nexus_model_cost_dollars_total", "Cost of models whose price is known, in US dollars.", "provider")
	modelEstimated = desc("nexus_model_requests_estimated_total", "Requests to models whose tokens are an estimate.", "provider")
)

func (s *sampler) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		s.build.Desc(), agents, queued, sends, repeats, retries, turns, launches, launchTook, unlaunched, spares, spent, machines, machineUp, machineAgents, machineFree, crashes, restarts, events, dropped,
		cpu, memory, largest, oneCPU, oneMemory, modelsRunning, modelRequests, modelTokens, modelEstimated, modelCost,
	} {
		out <- d
	}
}

func (s *sampler) Collect(out chan<- prometheus.Metric) {
	emit := func(d *prometheus.Desc, kind prometheus.ValueType, value float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, kind, value, labels...)
	}
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		emit(d, prometheus.GaugeValue, value, labels...)
	}
	count := func(d *prometheus.Desc, value uint64, labels ...string) {
		emit(d, prometheus.CounterValue, float64(value), labels...)
	}
	out <- s.build
	st := s.o.Supervisor.Stats()
	for _, state := range supervisor.States() {
		gauge(agents, float64(st.Agents[state]), state.String())
	}
	gauge(queued, float64(st.Waiting))
	count(sends, st.Prompts)
	count(repeats, st.Repeats)
	count(retries, st.Retries)
	for outcome, n := range st.Outcomes {
		count(turns, n, string(outcome))
	}
	count(launches, st.LaunchTimes.Count)
	out <- prometheus.MustNewConstHistogram(launchTook, st.LaunchTimes.Count, st.LaunchTimes.Sum.Seconds(), st.LaunchTimes.Within)
	count(unlaunched, st.LaunchFailures)
	waiting, used := s.o.Spares.Spares()
	gauge(spares, float64(waiting))
	count(spent, used)
	s.collectMachines(gauge)
	for _, reason := range supervisor.Reasons() {
		count(crashes, st.Crashes[reason], string(reason))
		count(restarts, st.Restarts[reason], string(reason))
	}
	count(events, st.Events)
	count(dropped, st.SlowSubs)

	u := s.o.Supervisor.Usage()
	emit(cpu, prometheus.CounterValue, s.monotonic(u.CPU).Seconds())
	top, sum := ranked(u.Agents)
	gauge(memory, float64(sum))
	most := int64(0)
	if len(top) > 0 {
		most = top[0].MemoryBytes
	}
	gauge(largest, float64(most))
	for _, one := range top[:min(len(top), TopAgents)] {
		emit(oneCPU, prometheus.CounterValue, one.CPU.Seconds(), one.id)
		gauge(oneMemory, float64(one.MemoryBytes), one.id)
	}
	models := s.o.Models.Models()
	gauge(modelsRunning, float64(models.Running))
	for _, service := range models.Services {
		for result, n := range service.Requests {
			count(modelRequests, n, service.Provider, result)
		}
		for kind, n := range service.Tokens {
			count(modelTokens, n, service.Provider, kind)
		}
		count(modelEstimated, service.Estimated, service.Provider)
		emit(modelCost, prometheus.CounterValue, service.Cost, service.Provider)
	}
}

// collectMachines tells of the machines of the cluster; of a server alone, that there is one. How many are known is bounded.
func (s *sampler) collectMachines(gauge func(*prometheus.Desc, float64, ...string)) {
	all := s.o.Nodes.Nodes()
	known := map[string]int{"up": 0, "draining": 0, "lost": 0, "left": 0, "removed": 0}
	for _, n := range all.Nodes {
		known[n.State]++
		if all.Cluster == nil {
			continue
		}
		if n.State != "up" && n.State != "draining" { // what it said last is no longer so
			gauge(machineUp, 0, n.Node)
			continue
		}
		gauge(machineUp, 1, n.Node)
		gauge(machineAgents, float64(n.Agents), n.Node)
		if n.FreeMemoryBytes != nil {
			gauge(machineFree, float64(*n.FreeMemoryBytes), n.Node)
		}
	}
	for state, n := range known {
		gauge(machines, float64(n), state)
	}
}

func (s *sampler) monotonic(now time.Duration) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cpu = max(s.cpu, now)
	return s.cpu
}

type ranking struct {
	id string
	supervisor.Usage
}

// ranked are the agents with what they take, the one with the most memory first,
// and the memory of all.
func ranked(agents map[string]supervisor.Usage) (all []ranking, memory int64) {
	for id, u := range agents {
		all = append(all, ranking{id, u})
		memory += u.MemoryBytes
	}
	slices.SortFunc(all, func(a, b ranking) int {
		return cmp.Or(cmp.Compare(b.MemoryBytes, a.MemoryBytes), cmp.Compare(a.id, b.id))
	})
	return all, memory
}
