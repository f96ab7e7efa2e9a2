package terminal

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/client"
	"nexus.internal/cmd/internal/cli"
	"nexus.internal/protocol/ratelimit"
)

// finish removes the temporary agents that were created or restored here and do nothing, with those that they created, and ends the server
// that was started for us, unless others use it. It says what stays.
func (t *talk) finish() []string {
	if t.gone {
		return nil // to ask it would be to try for some seconds once more
	}
	t.chat.met.wait(t.ctx)
	all, err := client.Do(t.ctx, t.c, "", api.ListAgents, api.None{})
	if err != nil {
		return nil // it has ended
	}
	left := leftOf(all.Agents, &t.chat.met)
	for _, agent := range left.done {
		_, _ = client.Do(t.ctx, t.c, "", api.DestroyAgent, api.AgentIDParams{AgentID: agent}) // or it is gone
	}
	if !t.o.Started {
		return nil
	}
	why := left.reasons(t.o.Program)
	if why == "" && t.othersTalk() {
		why = "others talk to it"
	}
	if why != "" {
		return []string{"nexus: the server goes on, as " + why + "; " + t.o.Program + " shutdown ends it"}
	}
	if lines, status := t.run("shutdown"); status != cli.ExitDone {
		return lines
	}
	return nil
}

// left are the agents at the end of a talk.
type left struct {
	done    []string // temporary ones that were created or restored here; neither they nor what they created are at work
	busy    []string // that are at work
	asking  []string // those of them of which a call waits for an approval
	foreign []string // that are not, and were neither created nor talked to here, nor created by such agents
}

func leftOf(all []api.AgentInfo, m *met) (l left) {
	by := cli.CreatorsOf(all)
	for _, a := range all {
		if a.RequestID != nil || a.Queued > 0 {
			l.busy = append(l.busy, a.AgentID)
			if a.PendingPermissions > 0 {
				l.asking = append(l.asking, a.AgentID)
			}
		}
	}
	below := func(agent string, those []string) bool {
		return slices.ContainsFunc(those, func(above string) bool { return by.Below(agent, above) })
	}
	for _, a := range all {
		works := slices.ContainsFunc(l.busy, func(agent string) bool { return by.Below(agent, a.AgentID) })
		if brought, _ := m.of(a.AgentID); brought && a.IsTemp && !works {
			l.done = append(l.done, a.AgentID)
		}
	}
	known := m.names()
	for _, a := range all {
		if !slices.Contains(l.busy, a.AgentID) && !below(a.AgentID, known) {
			l.foreign = append(l.foreign, a.AgentID)
		}
	}
	return l
}

// shownLeft is how many agents are named at the end.
const shownLeft = 3

// reasons say why a server with these agents does not end; "" for none. program is how verbs are called.
func (l left) reasons(program string) string {
	var reasons []string
	does := func(agents []string, one, many string) {
		if len(agents) == 1 {
			many = one
		}
		if len(agents) > 0 {
			reasons = append(reasons, listed(agents)+" "+many)
		}
	}
	shows := "approval (" + program + " approvals shows it)"
	does(l.asking, "waits for an "+shows, "wait for an "+shows)
	does(slices.DeleteFunc(slices.Clone(l.busy), func(agent string) bool { return slices.Contains(l.asking, agent) }), "is at work", "are at work")
	if len(l.foreign) > 0 {
		reasons = append(reasons, "it runs "+listed(l.foreign)+", not of this talk")
	}
	return strings.Join(reasons, ", and ")
}

// listed names agents: the first of many.
func listed(names []string) string {
	last := names[len(names)-1]
	if more := len(names) - shownLeft; more > 0 {
		names, last = names[:shownLeft+1], strconv.Itoa(more)+" more"
	}
	if len(names) == 1 {
		return last
	}
	return strings.Join(names[:len(names)-1], ", ") + " and " + last
}

// othersTalk reports whether requests of others run at the server; ours may be seen for a moment
// after their end.
func (t *talk) othersTalk() bool {
	for range 20 {
		text, err := t.c.Metrics(t.ctx)
		if err != nil {
			return false
		}
		running := 0.0
		for line := range strings.SplitSeq(text, "\n") {
			labels, value, ok := strings.Cut(line, "} ")
			if n, err := strconv.ParseFloat(value, 64); err == nil && ok && strings.HasPrefix(labels, "nexus_http_requests_running{") {
				running += n
			}
		}
		if running <= 1 { // that for the metrics
			return false
		}
		if ratelimit.Sleep(t.ctx, 50*time.Millisecond) != nil {
			return true
		}
	}
	return true
}
