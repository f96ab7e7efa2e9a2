package forward

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"time"

	"nexus.internal/bridge/api"
	"nexus.internal/protocol"
)

// loadAge is how old the load of a machine may be that is known here: what was placed since is not in it.
const loadAge = 2 * time.Second

// placed are the agents that were placed lately. The zero value is ready.
type placed struct {
	mu      sync.Mutex // guards what follows
	machine map[string][]time.Time
}

// on is how many were placed on a machine within loadAge. mu is held.
func (p *placed) on(machine string) int {
	p.machine[machine] = slices.DeleteFunc(p.machine[machine], func(at time.Time) bool { return time.Since(at) > loadAge })
	return len(p.machine[machine])
}

// Place implements [rpc.Elsewhere]: of the machines that fit, the one with the fewest agents for each processor, or else with the most free
// memory.
func (f *Client) Place(want api.Placement) (machine string, err error) {
	all, err := f.fitting(want)
	if err != nil {
		return "", err
	}
	machine, ok := f.best(all, true)
	if !ok {
		return "", &api.Error{
			Kind: api.KindTooManyAgents, Details: "each machine that place allows has as many agents as it takes",
			Suggestions: []string{"Destroy agents that are not needed, or allow other machines."},
		}
	}
	if machine == f.machines.Self() {
		return "", nil
	}
	return machine, nil
}

// Among implements [agents.Placer].
func (f *Client) Among(machines []string, near string, take bool) (machine string, ok bool) {
	all := slices.DeleteFunc(f.machines.All(), func(m Machine) bool { return m.State != Up || m.Draining || !slices.Contains(machines, m.Name) })
	if at := slices.IndexFunc(all, func(m Machine) bool { return m.Name == near }); at >= 0 {
		if machine, ok = f.best(all[at:at+1:at+1], take); ok {
			return machine, true
		}
	}
	return f.best(all, take)
}

// Node implements [rpc.Elsewhere].
func (f *Client) Node(name string) (machine string, err error) {
	all := f.machines.All()
	at := slices.IndexFunc(all, func(m Machine) bool { return m.Name == name })
	switch {
	case at < 0:
		return "", api.Invalid("node", "no machine of that name is known").Near(name, names(all))
	case name == f.machines.Self():
		return "", nil
	case all[at].State != Up:
		return "", &api.Error{
			Kind: api.KindNodeUnreachable, Details: "the machine " + name + " is not reached", Suggestions: []string{"Send it again when the machine is back."},
		}
	}
	return name, nil
}

// best is the machine of these that takes agents and has the most room; ok is false if there is none. take says that an agent is placed there.
func (f *Client) best(all []Machine, take bool) (machine string, ok bool) {
	f.placed.mu.Lock()
	defer f.placed.mu.Unlock()
	if f.placed.machine == nil {
		f.placed.machine = map[string][]time.Time{}
	}
	all = slices.DeleteFunc(slices.Clone(all), func(m Machine) bool {
		return m.Load.MaxAgents > 0 && m.Load.Agents+f.placed.on(m.Name) >= m.Load.MaxAgents
	})
	if len(all) == 0 {
		return "", false
	}
	best := slices.MinFunc(all, func(a, b Machine) int {
		return cmp.Or(cmp.Compare(f.taken(a), f.taken(b)), cmp.Compare(b.Load.FreeBytes, a.Load.FreeBytes), strings.Compare(a.Name, b.Name))
	})
	if take {
		f.placed.machine[best.Name] = append(f.placed.machine[best.Name], time.Now())
	}
	return best.Name, true
}

// taken is how many agents a machine has for each processor. placed.mu is held.
func (f *Client) taken(m Machine) float64 {
	return float64(m.Load.Agents+f.placed.on(m.Name)) / float64(max(1, m.Load.Processors))
}

// fitting are the machines that are up and as wanted, at least one.
func (f *Client) fitting(want api.Placement) ([]Machine, error) {
	all := f.machines.All()
	if want.Node != nil && !slices.ContainsFunc(all, func(m Machine) bool { return m.Name == *want.Node }) {
		return nil, api.Invalid("place.node", "no machine of that name is known").Near(*want.Node, names(all))
	}
	near := protocol.Value(want.Near)
	if near != "" {
		owner, known := f.Owner(near)
		if !known {
			return nil, api.Invalid("place.near", "no agent of that name is known")
		}
		near = cmp.Or(owner, f.machines.Self())
	}
	fits := slices.DeleteFunc(slices.Clone(all), func(m Machine) bool {
		for label, value := range protocol.Value(want.Labels) {
			if have, ok := m.Labels[label]; !ok || have != value {
				return true
			}
		}
		return want.Node != nil && m.Name != *want.Node || near != "" && m.Name != near
	})
	if len(fits) == 0 {
		return nil, api.Invalid("place", "no machine is as it says")
	}
	up := slices.DeleteFunc(slices.Clone(fits), func(m Machine) bool { return m.State != Up })
	if len(up) == 0 {
		return nil, &api.Error{
			Kind: api.KindNodeUnreachable, Details: "of the machines that place allows, none is reached: " + strings.Join(names(fits), ", "),
			Suggestions: []string{"Send it again when one of them is back, or allow others."},
		}
	}
	takes := slices.DeleteFunc(up, func(m Machine) bool { return m.Draining })
	if len(takes) == 0 {
		return nil, &api.Error{
			Kind: api.KindTooManyAgents, Details: "each machine that place allows and that is up drains: " + strings.Join(names(fits), ", "),
			Suggestions: []string{"Allow other machines, or end the drain (nexus cluster drain MACHINE --undo)."},
		}
	}
	return takes, nil
}

func names(all []Machine) (names []string) {
	for _, m := range all {
		names = append(names, m.Name)
	}
	return names
}
