package broker

import (
	"fmt"
	"math"
	"strconv"
	"sync"
	"time"

	"go.uber.org/zap"

	"nexus.internal/protocol"
	"nexus.internal/protocol/ratelimit"
	"nexus.internal/protocol/tokencount"
	"nexus.internal/supervisor"
)

// Limits bound what an agent, with all agents that it made, may use. Zero is no limit. Those
// of processes, which Outer shares with others, and of Agents are kept here for others.
type Limits struct {
	protocol.Limits
	// Concurrent is how many requests may be under way.
	Concurrent uint64
}

// tighten is l where it is the tighter one, and outer elsewhere.
func (l Limits) tighten(outer Limits) Limits {
	return Limits{protocol.Limits{
		Tokens:            protocol.Tighter(l.Tokens, outer.Tokens),
		CostUSD:           protocol.Tighter(l.CostUSD, outer.CostUSD),
		RequestsPerMinute: protocol.Tighter(l.RequestsPerMinute, outer.RequestsPerMinute),
		TokensPerMinute:   protocol.Tighter(l.TokensPerMinute, outer.TokensPerMinute),
		ProcessLimits:     l.ProcessLimits.Within(outer.ProcessLimits),
		Agents:            protocol.Tighter(l.Agents, outer.Agents),
	}, protocol.Tighter(l.Concurrent, outer.Concurrent)}
}

// Usage is what was used, in tokens but for Requests, Estimated and Cost.
type Usage struct {
	// Requests were forwarded, whatever became of them.
	Requests uint64
	// Estimated are the requests whose tokens nobody counted for us.
	Estimated uint64
	// Input was not read from a cache, nor written to one.
	Input         uint64
	Output        uint64
	CacheRead     uint64
	CacheCreation uint64
	// Cost is in US dollars, of requests to models whose price is known.
	Cost float64
}

func usageOf(c tokencount.Count) Usage {
	u := Usage{Input: c.Input, Output: c.Output, CacheRead: c.CacheRead, CacheCreation: c.CacheCreation}
	if c.Estimated {
		u.Estimated = 1
	}
	return u
}

// Tokens is the sum that budgets and rates are about.
func (u Usage) Tokens() uint64 { return u.Input + u.Output + u.CacheRead + u.CacheCreation }

func (u *Usage) add(v Usage) {
	u.Requests += v.Requests
	u.Estimated += v.Estimated
	u.Input += v.Input
	u.Output += v.Output
	u.CacheRead += v.CacheRead
	u.CacheCreation += v.CacheCreation
	u.Cost += v.Cost
}

// costOf is what the tokens cost at that price, in US dollars.
func (u Usage) costOf(p protocol.Price) float64 {
	return p.Cost(protocol.TurnUsage{
		InputTokens: u.Input + u.CacheRead + u.CacheCreation, OutputTokens: u.Output,
		CacheReadInputTokens: u.CacheRead, CacheCreationInputTokens: u.CacheCreation,
	})
}

// maxAncestry is how many agents a limit may reach up through: more than the
// façade lets there be.
const maxAncestry = 16

// account is what the broker knows of one agent. Broker.mu guards it.
type account struct {
	id           string
	savedParent  string   // the agent that made it, as it was saved
	parent       *account // its account
	limits       Limits
	hasOwnLimits bool   // limits are its own, not Options.Limits
	usage        Usage  // its own
	spent        uint64 // tokens: its own and those of agents it made
	spentUSD     float64
	sockets      int // incarnations that have a socket

	ownRequests int // requests of its own under way
	running     int // those of agents it made as well
	requests    ratelimit.Bucket
	tokens      ratelimit.Bucket

	changing int // changes of its limits that are not saved yet

	saving sync.Mutex // it is saved by one goroutine at a time; taken before Broker.mu
}

// ancestry is the account and those of its ancestors. Who made whom may have become a
// circle when names were used again.
func (a *account) ancestry() []*account {
	var ancestry []*account
	for ; a != nil && len(ancestry) < maxAncestry; a = a.parent {
		for _, before := range ancestry {
			if before == a {
				return ancestry
			}
		}
		ancestry = append(ancestry, a)
	}
	return ancestry
}

// evict forgets the accounts that do nothing and lose nothing by that: their
// store has it all. b.mu is held.
func (b *Broker) evict() {
	now := time.Now()
	needed := map[*account]bool{}
	for _, acc := range b.accounts {
		if b.options.Accounts == nil || acc.sockets > 0 || acc.running > 0 || acc.changing > 0 ||
			!acc.requests.IsFull(now, ratelimit.PerMinute(acc.limits.RequestsPerMinute)) || !acc.tokens.IsFull(now, ratelimit.PerMinute(acc.limits.TokensPerMinute)) {
			for _, a := range acc.ancestry() {
				needed[a] = true
			}
		}
	}
	for id, acc := range b.accounts {
		if !needed[acc] {
			delete(b.accounts, id)
			b.evicted++
		}
	}
}

// dollars is an amount in words, with as many digits as tell small ones apart.
func dollars(amount float64) string {
	if amount >= 1 {
		return fmt.Sprintf("$%.2f", amount)
	}
	return "$" + strconv.FormatFloat(math.Round(amount*1e6)/1e6, 'f', -1, 64)
}

// admit lets a request to s begin, or says why it may not. paid says that it costs
// tokens of that model. Whoever is let in must call finish.
func (b *Broker) admit(acc *account, s *service, paid bool, model string) *refusal {
	_, priced := s.price(model)
	now := time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	ancestry := acc.ancestry()
	for _, a := range ancestry {
		l := a.limits
		switch {
		case paid && l.Tokens > 0 && a.spent >= l.Tokens:
			return refuse(402, "budget_exceeded", "agent %s has used %s of its %s tokens: set_limits can raise limits.tokens", a.id, commas(a.spent), commas(l.Tokens))
		case paid && l.CostUSD > 0 && a.spentUSD >= l.CostUSD:
			return refuse(402, "budget_exceeded", "agent %s has spent %s of its %s: set_limits can raise limits.cost_usd", a.id, dollars(a.spentUSD), dollars(l.CostUSD))
		case paid && l.CostUSD > 0 && !priced:
			return unknownPrice(a, s, model)
		case l.Concurrent > 0 && uint64(a.running) >= l.Concurrent:
			return refuse(429, "rate_limit_exceeded", "agent %s may have %d requests under way at once", a.id, l.Concurrent).after(time.Second)
		}
		if wait := a.requests.Wait(now, ratelimit.PerMinute(l.RequestsPerMinute), 1); wait > 0 {
			return refuse(429, "rate_limit_exceeded", "agent %s may make %s requests a minute", a.id, commas(l.RequestsPerMinute)).after(wait)
		}
		if wait := a.tokens.Wait(now, ratelimit.PerMinute(l.TokensPerMinute), 1); paid && wait > 0 {
			return refuse(429, "rate_limit_exceeded", "agent %s may use %s tokens a minute", a.id, commas(l.TokensPerMinute)).after(wait)
		}
	}
	acc.ownRequests++
	for _, a := range ancestry {
		a.running++
		a.requests.Take(now, ratelimit.PerMinute(a.limits.RequestsPerMinute), 1)
	}
	return nil
}

func unknownPrice(a *account, s *service, model string) *refusal {
	return refuse(402, "unknown_price", "agent %s may spend %s, and what model %q of provider %s costs is not known: add its price to the models of this provider in config.json, or lift limits.cost_usd",
		a.id, dollars(a.limits.CostUSD), model, s.name)
}

// admitModel lets a request that was let in go to the models that its body names, or says why it may not.
func (b *Broker) admitModel(acc *account, s *service, body *tokencount.Request) *refusal {
	_, priced := s.price(body.Model())
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, a := range acc.ancestry() {
		switch {
		case a.limits.CostUSD == 0, priced && !body.Others():
		case !priced:
			return unknownPrice(a, s, body.Model())
		default:
			return refuse(402, "unknown_price", `agent %s may spend %s, so its request may not name other models in "models": which of them answers is not known`, a.id, dollars(a.limits.CostUSD))
		}
	}
	return nil
}

// limited is the agent, of acc and those that it comes from, whose tokens or cost are limited; "" if none is.
func (b *Broker) limited(acc *account) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, a := range acc.ancestry() {
		if a.limits.Tokens != 0 || a.limits.CostUSD != 0 || a.limits.TokensPerMinute != 0 {
			return a.id
		}
	}
	return ""
}

// admitStream refuses, where something limits the tokens or the cost of the agent, a request of which nobody knows whether its answer is to be a stream, and a stream of a
// program of another make that would not be counted, as the service counts only those that ask for it. nexus's own child asks, unless a service does not take the question.
func (b *Broker) admitStream(x *forwardedRequest, body *tokencount.Request) *refusal {
	vague := body.Vague()
	unasked := body.Unasked() && x.program && x.service.silent.Load()
	if vague == "" && !unasked {
		return nil
	}
	agent := b.limited(x.account)
	switch {
	case agent == "":
		return nil
	case vague != "":
		return refuse(400, "invalid_request_error", `what agent %s uses is limited, so the %q of its request must be true or false, or be left out: services read other values in more than one way`, agent, vague)
	default:
		return refuse(400, "invalid_request_error", `what agent %s uses is limited, and provider %s counts a stream only if the request asks for it: set "stream_options" to {"include_usage":true}`, agent, x.service.name)
	}
}

// admitAnswer refuses a stream that answers a request which was let in as another one, where admitStream would refuse it.
func (b *Broker) admitAnswer(x *forwardedRequest) *refusal {
	if x.answer.Form != tokencount.EventStream || !x.program || !x.service.silent.Load() || x.body.asked() {
		return nil
	}
	if agent := b.limited(x.account); agent != "" {
		return refuse(502, "upstream_error", `provider %s answered with a stream that it does not count, and what agent %s uses is limited: set "stream_options" to {"include_usage":true}`, x.service.name, agent)
	}
	return nil
}

// finish accounts for a request to s that admit let in.
func (b *Broker) finish(acc *account, s *service, c result, used Usage) {
	now := time.Now()
	b.mu.Lock()
	used.Requests = 1
	acc.ownRequests--
	acc.usage.add(used)
	b.traffic[s.name].count(c, used)
	ancestry := acc.ancestry()
	for _, a := range ancestry {
		a.running--
		a.spent += used.Tokens()
		a.spentUSD += used.Cost
		a.tokens.Take(now, ratelimit.PerMinute(a.limits.TokensPerMinute), float64(used.Tokens()))
	}
	b.mu.Unlock()
	if used.Tokens() == 0 {
		return
	}
	for _, a := range ancestry {
		if err := b.saveAccount(a); err != nil {
			b.log.Warn("it is not on the disk", zap.Error(err))
		}
	}
}

// AgentLimits are what the broker holds an agent to.
type AgentLimits struct {
	Limits Limits
	// Outer are those of the agent that made it, of which those of processes and Agents bound its
	// own; nil if none did.
	Outer *Limits
	Spent uint64 // tokens, which count against Limits.Tokens
	// SpentUSD counts against Limits.CostUSD, in US dollars.
	SpentUSD float64
}

// AgentLimits are those that an agent is held to, by its name alone if nobody registered it. The errors
// are those of Register.
func (b *Broker) AgentLimits(agent string) (h AgentLimits, err error) {
	err = b.withAccounts(func() error {
		acc := b.accounts[agent]
		h = AgentLimits{Limits: acc.limits, Spent: acc.spent, SpentUSD: acc.spentUSD}
		if acc.parent != nil {
			h.Outer = new(acc.parent.limits)
		}
		return nil
	}, agent)
	return h, err
}

// SetLimits gives an agent limits of its own and saves them; those of processes hold for
// what starts later. If they cannot be saved, nothing is changed.
func (b *Broker) SetLimits(agent string, l Limits) error {
	var acc *account
	var before Limits
	var had bool
	if err := b.withAccounts(func() error {
		acc = b.accounts[agent]
		before, had = acc.limits, acc.hasOwnLimits
		acc.limits, acc.hasOwnLimits = l, true
		acc.changing++
		return nil
	}, agent); err != nil {
		return err
	}
	err := b.saveAccount(acc)
	b.mu.Lock()
	defer b.mu.Unlock()
	acc.changing--
	if err != nil {
		acc.limits, acc.hasOwnLimits = before, had
	}
	return err
}

// commas writes 1234567 as 1,234,567.
func commas(n uint64) string {
	s := strconv.FormatUint(n, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// shares are the agents that an agent comes from, its creator first, with the limits of now
// that it shares with them.
func (b *Broker) shares(agent string) (above []supervisor.Share) {
	b.mu.Lock()
	defer b.mu.Unlock()
	acc := b.accounts[agent]
	if acc == nil {
		return nil
	}
	for _, a := range acc.ancestry()[1:] {
		above = append(above, supervisor.Share{Agent: a.id, Limits: a.limits.ProcessLimits})
	}
	return above
}
