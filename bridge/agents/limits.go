package agents

import (
	"nexus.internal/bridge/api"
	"nexus.internal/protocol"
)

// HeldLimits are the limits that hold for an agent.
type HeldLimits struct {
	Held protocol.Limits
	// Outer are those of the agent that created it, as far as none of its own may be
	// looser; those that are 0 bound nothing.
	Outer protocol.Limits
	// TokensUsed counts against Held.Tokens.
	TokensUsed uint64
	// CostUsed counts against Held.CostUSD, in US dollars.
	CostUsed float64
}

// Limits are the limits that hold for an agent, which need not run.
func (r *Registry) Limits(id string) (api.LimitsResult, error) {
	defer r.locks.Lock(id)()
	if err := r.Access().Find(id); err != nil {
		return api.LimitsResult{}, err
	}
	now, err := r.o.Admission.Limits(id)
	return now.result(), err
}

// Used is what an agent and those that it created have used: tokens, and their cost in US dollars.
// It waits for nobody who does something with the name.
func Used(r *Registry, id string) (tokens uint64, cost float64, err error) {
	now, err := r.o.Admission.Limits(id)
	return now.TokensUsed, now.CostUsed, err
}

func (l HeldLimits) result() api.LimitsResult {
	return api.LimitsResult{TokensUsed: l.TokensUsed, CostUsed: l.CostUsed, Limits: api.HeldLimits(l.Held)}
}

// SetLimits changes the limits that are given. Those of models hold at once, turn_s and
// agents for what begins later, the others from the agent's next process on. The agent need
// not run: with limits that are too small it could not start. An error of raise, which is
// told what would be looser, refuses that.
func (r *Registry) SetLimits(id string, given api.Limits, raise func(limit string) error) (api.LimitsResult, error) {
	defer r.locks.Lock(id)()
	if err := r.Access().Find(id); err != nil {
		return api.LimitsResult{}, err
	}
	now, err := r.o.Admission.Limits(id)
	if err != nil {
		return api.LimitsResult{}, err
	}
	outer := given.Beside(&now.Outer)
	for i, limit := range given.Beside(&now.Held) {
		if looser(limit) {
			if err := raise("limits." + limit.Name); err != nil {
				return api.LimitsResult{}, err
			}
		}
		if looser(outer[i]) {
			return api.LimitsResult{}, api.Invalid("limits."+limit.Name, "the agent that created %s has %s", id, outer[i].Text())
		}
	}
	if err := r.o.Admission.SetLimits(id, given); err != nil {
		return api.LimitsResult{}, err
	}
	if now, err = r.o.Admission.Limits(id); err != nil {
		return api.LimitsResult{}, err
	}
	if a, err := r.o.Supervisor.Agent(id); err == nil {
		a.SetLimits(now.Held.ProcessLimits, now.Held.Agents)
	}
	return now.result(), nil
}

// checkNotRaised is why a saved agent cannot be continued with the limits that are given:
// create_agent narrows limits and raises none. The lock of its id is held.
func checkNotRaised(a Admission, id string, given api.Limits) error {
	now, err := a.Limits(id)
	if err != nil {
		return err
	}
	for _, limit := range given.Beside(&now.Held) {
		if looser(limit) {
			refused := api.Invalid("limits."+limit.Name, "the saved agent %s has %s", id, limit.Text())
			refused.Hint = "leave it out, create the agent, and raise it by set_limits"
			return refused
		}
	}
	return nil
}

// sameLimits reports whether the limits that are given are those that hold for an agent.
func sameLimits(a Admission, id string, given *api.Limits) (bool, error) {
	if given == nil {
		return true, nil
	}
	now, err := a.Limits(id)
	if err != nil {
		return false, err
	}
	outer := given.Beside(&now.Outer)
	for i, limit := range given.Beside(&now.Held) {
		if limit.Given != nil && protocol.Tighter(*limit.Given, *outer[i].Held) != *limit.Held {
			return false, nil
		}
	}
	return true, nil
}

// looser reports whether a limit that is given allows more than the one that holds.
func looser(m api.LimitMember) bool {
	return m.Given != nil && *m.Given != *m.Held && protocol.Tighter(*m.Given, *m.Held) == *m.Held
}
