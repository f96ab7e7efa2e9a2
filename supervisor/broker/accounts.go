package broker

import (
	"errors"
	"time"

	"nexus.internal/protocol"
	"nexus.internal/supervisor"
	"nexus.internal/supervisor/store"
)

// lockWithAccounts reads the accounts of agents, and of those that these come from, as far as
// they are not in memory, and returns with b.mu held; on an error it is not. That is a
// *store.DamagedError, or a *supervisor.StartError of what may pass. Nothing is read while b.mu
// is held.
func (b *Broker) lockWithAccounts(agents ...string) error {
	read := map[string]*account{}
	b.mu.Lock()
	forgotten := b.evicted
	for {
		if forgotten != b.evicted { // one of them may have been in memory, and written to, meanwhile
			clear(read)
			forgotten = b.evicted
		}
		agent, ok := b.nextUnread(read, agents)
		if !ok {
			break
		}
		b.mu.Unlock()
		acc, err := b.readAccount(agent)
		if err != nil {
			return err
		}
		b.mu.Lock()
		read[agent] = acc
	}
	fresh := map[string]*account{}
	for id, acc := range read {
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
	return nil
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
	acc.spent = r.Spent
	acc.usage = Usage{
		Requests: r.Requests, Estimated: r.Estimated,
		Input: r.Input, Output: r.Output, CacheRead: r.CacheRead, CacheCreation: r.CacheCreation,
	}
	if l := r.Limits; l != nil {
		acc.hasOwnLimits = true
		acc.limits = Limits{
			Tokens: l.Tokens, RequestsPerMinute: l.RequestsPerMinute, TokensPerMinute: l.TokensPerMinute,
			Concurrent: l.Concurrent, Agents: protocol.ValueOr(l.Agents, acc.limits.Agents), Process: acc.limits.Process,
		}
		if p := l.Process; p != nil {
			acc.limits.Process = supervisor.Limits{
				MemoryBytes: p.MemoryBytes, Processes: p.Processes, OpenFiles: p.OpenFiles, CPUSeconds: p.CPUSeconds,
				OutputBytesPerSecond: p.OutputBytesPerSecond, TurnTime: time.Duration(p.TurnSeconds) * time.Second,
			}
		}
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
		Input: u.Input, Output: u.Output, CacheRead: u.CacheRead, CacheCreation: u.CacheCreation,
	}
	if acc.hasOwnLimits {
		r.Limits = &store.Limits{
			Tokens: l.Tokens, RequestsPerMinute: l.RequestsPerMinute, TokensPerMinute: l.TokensPerMinute,
			Concurrent: l.Concurrent, Agents: &l.Agents,
			Process: &store.ProcessLimits{
				MemoryBytes: l.Process.MemoryBytes, Processes: l.Process.Processes, OpenFiles: l.Process.OpenFiles,
				CPUSeconds: l.Process.CPUSeconds, OutputBytesPerSecond: l.Process.OutputBytesPerSecond,
				TurnSeconds: int64(l.Process.TurnTime / time.Second),
			},
		}
	}
	if acc.parent != nil {
		r.Parent = acc.parent.id
	}
	b.mu.Unlock()
	return b.options.Accounts.SetAccount(acc.id, r)
}
