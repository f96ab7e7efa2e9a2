package broker

import (
	"errors"

	"nexus.internal/protocol"
	"nexus.internal/supervisor"
	"nexus.internal/supervisor/store"
)

// withAccounts calls f with b.mu held, once the accounts of agents, and of those that these come
// from, are in memory; nothing is read while b.mu is held. The error is f's, or without f a
// *store.DamagedError, or a *supervisor.StartError of what may pass.
func (b *Broker) withAccounts(f func() error, agents ...string) error {
	read := accountsRead{accounts: map[string]*account{}}
	for {
		missing, err := b.tryWithAccounts(&read, f, agents)
		if missing == "" {
			return err
		}
		acc, err := b.readAccount(missing)
		if err != nil {
			return err
		}
		read.accounts[missing] = acc
	}
}

// accountsRead are those that were read since Broker.evicted was so.
type accountsRead struct {
	accounts map[string]*account
	evicted  uint64
}

// tryWithAccounts calls f unless an account is missing, and returns the agent that it is of.
func (b *Broker) tryWithAccounts(read *accountsRead, f func() error, agents []string) (missing string, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if read.evicted != b.evicted { // one of them may have been in memory, and written to, meanwhile
		clear(read.accounts)
		read.evicted = b.evicted
	}
	if agent, ok := b.nextUnread(read.accounts, agents); ok {
		return agent, nil
	}
	fresh := map[string]*account{}
	for id, acc := range read.accounts {
		if b.accounts[id] == nil {
			b.accounts[id], fresh[id] = acc, acc
			if !acc.hasOwnLimits {
				acc.limits = b.limits
			}
		}
	}
	for _, acc := range fresh {
		acc.parent = b.accounts[acc.savedParent]
	}
	return "", f()
}

// nextUnread is one of the agents, or of those above them, whose account is neither in memory
// nor among those read; false if there is none. b.mu is held.
func (b *Broker) nextUnread(read map[string]*account, agents []string) (string, bool) {
	seen := map[string]bool{"": true}
	for _, agent := range agents {
		for !seen[agent] && b.accounts[agent] == nil {
			seen[agent] = true
			acc := read[agent]
			if acc == nil {
				return agent, true
			}
			agent = acc.savedParent
		}
	}
	return "", false
}

// readAccount is what is saved of an agent, or its first account; one without limits of its own
// has none yet. The caller holds no lock.
func (b *Broker) readAccount(agent string) (*account, error) {
	acc := &account{id: agent}
	if b.options.Accounts == nil {
		return acc, nil
	}
	r, err := b.options.Accounts.Account(agent)
	if _, damaged := errors.AsType[*store.DamagedError](err); err != nil && !damaged {
		err = &supervisor.StartError{Err: err}
	}
	if err != nil || r == nil {
		return acc, err
	}
	acc.spent, acc.spentUSD = r.Spent, r.SpentUSD
	acc.usage = Usage{
		Requests: r.Requests, Estimated: r.Estimated,
		Input: r.Input, Output: r.Output, CacheRead: r.CacheRead, CacheCreation: r.CacheCreation, Cost: r.Cost,
	}
	if l := r.Limits; l != nil {
		acc.hasOwnLimits = true
		acc.limits = Limits{protocol.Limits{
			Tokens: l.Tokens, CostUSD: l.CostUSD, RequestsPerMinute: l.RequestsPerMinute, TokensPerMinute: l.TokensPerMinute,
			ProcessLimits: protocol.Value(l.Process), Agents: protocol.Value(l.Agents),
		}, l.Concurrent}
	}
	if r.Parent != agent {
		acc.savedParent = r.Parent
	}
	return acc, nil
}

// saveAccount saves an account. The caller holds no lock.
func (b *Broker) saveAccount(acc *account) error {
	if b.options.Accounts == nil {
		return nil
	}
	acc.saving.Lock()
	defer acc.saving.Unlock()
	b.mu.Lock()
	if b.accounts[acc.id] != acc { // another agent has its name now
		b.mu.Unlock()
		return nil
	}
	l, u := acc.limits, acc.usage
	r := &store.Account{
		Spent: acc.spent, Requests: u.Requests, Estimated: u.Estimated,
		Input: u.Input, Output: u.Output, CacheRead: u.CacheRead, CacheCreation: u.CacheCreation, Cost: u.Cost, SpentUSD: acc.spentUSD,
	}
	if acc.hasOwnLimits {
		r.Limits = &store.Limits{
			Tokens: l.Tokens, RequestsPerMinute: l.RequestsPerMinute, TokensPerMinute: l.TokensPerMinute,
			CostUSD: l.CostUSD, Concurrent: l.Concurrent, Agents: &l.Agents, Process: &l.ProcessLimits,
		}
	}
	if acc.parent != nil {
		r.Parent = acc.parent.id
	}
	b.mu.Unlock()
	return b.options.Accounts.SetAccount(acc.id, r)
}
