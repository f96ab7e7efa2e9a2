package broker

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"go.uber.org/zap"

	"nexus.internal/protocol/strict"
	"nexus.internal/supervisor"
)

// Limits bound what an agent, with all agents that it made, may use. Zero is
// no limit.
type Limits struct {
	// Tokens is the budget for the agent's life, of all kinds together.
	Tokens uint64
	// RequestsPerMinute and TokensPerMinute are rates: that much at once, and
	// as much again evenly over each minute.
	RequestsPerMinute int
	TokensPerMinute   int
	// Concurrent is how many requests may be under way.
	Concurrent int
	// Process are those of the agent's processes, each agent's by itself. They
	// are kept here for whoever starts them.
	Process supervisor.Limits
}

// within is l where it is the tighter one, and outer elsewhere.
func (l Limits) within(outer Limits) Limits {
	return Limits{
		Tokens:            supervisor.Tighter(l.Tokens, outer.Tokens),
		RequestsPerMinute: supervisor.Tighter(l.RequestsPerMinute, outer.RequestsPerMinute),
		TokensPerMinute:   supervisor.Tighter(l.TokensPerMinute, outer.TokensPerMinute),
		Concurrent:        supervisor.Tighter(l.Concurrent, outer.Concurrent),
		Process:           l.Process.Within(outer.Process),
	}
}

// Usage is what was used, in tokens but for Requests and Estimated.
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
}

// maxLine is how many agents a limit may reach up through: more than the
// façade lets there be.
const maxLine = 16

// account is what the broker knows of one agent. Broker.mu guards it.
type account struct {
	id     string
	file   string // "" if it is kept in memory alone
	parent *account
	limits Limits
	given  bool   // limits are its own, not Options.Limits
	usage  Usage  // its own
	spent  uint64 // tokens: its own and those of agents it made
	doors  int    // incarnations that have a socket

	own      int // requests of its own under way
	running  int // those of agents it made as well
	requests bucket
	tokens   bucket

	saving sync.Mutex // one writer of file at a time; taken before Broker.mu
}

// line is the account and those above it. Who made whom may have become a
// circle when names were used again.
func (a *account) line() []*account {
	var line []*account
	for ; a != nil && len(line) < maxLine; a = a.parent {
		for _, before := range line {
			if before == a {
				return line
			}
		}
		line = append(line, a)
	}
	return line
}

// record is the layout of an account's file.
type record struct {
	Parent        string        `json:"parent,omitempty" wire:"default"`
	Limits        *recordLimits `json:"limits,omitzero"`
	Spent         uint64        `json:"spent_tokens"`
	Requests      uint64        `json:"requests"`
	Estimated     uint64        `json:"estimated_requests"`
	Input         uint64        `json:"input_tokens"`
	Output        uint64        `json:"output_tokens"`
	CacheRead     uint64        `json:"cache_read_input_tokens"`
	CacheCreation uint64        `json:"cache_creation_input_tokens"`
}

// recordLimits are limits that are an agent's own.
type recordLimits struct {
	Tokens            uint64 `json:"tokens"`
	RequestsPerMinute uint64 `json:"requests_per_minute"`
	TokensPerMinute   uint64 `json:"tokens_per_minute"`
	Concurrent        uint64 `json:"concurrent"`

	Process *recordProcess `json:"process,omitzero"`
}

type recordProcess struct {
	MemoryBytes          int64 `json:"memory_bytes"`
	Processes            int64 `json:"processes"`
	OpenFiles            int64 `json:"open_files"`
	CPUSeconds           int64 `json:"cpu_s"`
	OutputBytesPerSecond int64 `json:"output_bytes_per_s"`
	TurnSeconds          int64 `json:"turn_s"`
}

// account finds an agent's account, or what is saved of it, or makes one. b.mu
// is held; the file is small and read once.
func (b *Broker) account(agent string) *account {
	if acc := b.accounts[agent]; acc != nil {
		return acc
	}
	acc := &account{id: agent, file: b.o.File(agent), limits: b.o.Limits}
	b.accounts[agent] = acc
	if acc.file == "" {
		return acc
	}
	var r record
	data, err := os.ReadFile(acc.file)
	if err == nil {
		err = strict.Unmarshal(data, &r, strict.IgnoreUnknown)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return acc
	case err != nil:
		b.log.Warn("what an agent used cannot be read and counts as nothing", zap.String("agent", agent), zap.Error(err))
		return acc
	}
	acc.spent = r.Spent
	acc.usage = Usage{
		Requests: r.Requests, Estimated: r.Estimated,
		Input: r.Input, Output: r.Output, CacheRead: r.CacheRead, CacheCreation: r.CacheCreation,
	}
	if l := r.Limits; l != nil {
		acc.given = true
		acc.limits = Limits{
			Tokens: l.Tokens, RequestsPerMinute: whole(l.RequestsPerMinute),
			TokensPerMinute: whole(l.TokensPerMinute), Concurrent: whole(l.Concurrent), Process: acc.limits.Process,
		}
		if p := l.Process; p != nil {
			acc.limits.Process = supervisor.Limits{
				MemoryBytes: p.MemoryBytes, Processes: p.Processes, OpenFiles: p.OpenFiles, CPUSeconds: p.CPUSeconds,
				OutputBytesPerSecond: p.OutputBytesPerSecond, TurnTime: time.Duration(p.TurnSeconds) * time.Second,
			}
		}
	}
	if r.Parent != "" && r.Parent != agent {
		acc.parent = b.account(r.Parent)
	}
	return acc
}

func whole(n uint64) int { return int(min(n, math.MaxInt32)) }

// save writes an account's file anew, so that it is whole at any time. The
// caller holds no lock.
func (b *Broker) save(acc *account) error {
	if acc.file == "" {
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
	r := record{
		Spent: acc.spent, Requests: u.Requests, Estimated: u.Estimated,
		Input: u.Input, Output: u.Output, CacheRead: u.CacheRead, CacheCreation: u.CacheCreation,
	}
	if acc.given {
		r.Limits = &recordLimits{
			Tokens: l.Tokens, RequestsPerMinute: uint64(l.RequestsPerMinute),
			TokensPerMinute: uint64(l.TokensPerMinute), Concurrent: uint64(l.Concurrent),
			Process: &recordProcess{
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
	data, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("save what agent %s used: %w", acc.id, err)
	}
	next := acc.file + ".next"
	if err := os.WriteFile(next, append(data, '\n'), 0o600); err != nil {
		return fmt.Errorf("save what agent %s used: %w", acc.id, err)
	}
	if err := os.Rename(next, acc.file); err != nil {
		return fmt.Errorf("save what agent %s used: %w", acc.id, err)
	}
	return nil
}

// tidy forgets the accounts that do nothing and lose nothing by that: their
// file has it all. b.mu is held.
func (b *Broker) tidy() {
	now := time.Now()
	needed := map[*account]bool{}
	for _, acc := range b.accounts {
		if acc.file == "" || acc.doors > 0 || acc.running > 0 ||
			!acc.requests.full(now, acc.limits.RequestsPerMinute) || !acc.tokens.full(now, acc.limits.TokensPerMinute) {
			for _, a := range acc.line() {
				needed[a] = true
			}
		}
	}
	for id, acc := range b.accounts {
		if !needed[acc] {
			delete(b.accounts, id)
		}
	}
}

// enter lets a request begin, or says why it may not. paid says that it costs
// tokens. Whoever is let in must call leave.
func (b *Broker) enter(acc *account, paid bool) *refusal {
	now := time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	line := acc.line()
	for _, a := range line {
		l := a.limits
		switch {
		case paid && l.Tokens > 0 && a.spent >= l.Tokens:
			return refuse(402, "budget_exceeded", "agent %s has used %s of its %s tokens", a.id, commas(a.spent), commas(l.Tokens))
		case l.Concurrent > 0 && a.running >= l.Concurrent:
			return refuse(429, "rate_limit_exceeded", "agent %s may have %d requests under way at once", a.id, l.Concurrent).after(time.Second)
		}
		if wait := a.requests.wait(now, l.RequestsPerMinute); wait > 0 {
			return refuse(429, "rate_limit_exceeded", "agent %s may make %s requests a minute", a.id, commas(uint64(l.RequestsPerMinute))).after(wait)
		}
		if wait := a.tokens.wait(now, l.TokensPerMinute); paid && wait > 0 {
			return refuse(429, "rate_limit_exceeded", "agent %s may use %s tokens a minute", a.id, commas(uint64(l.TokensPerMinute))).after(wait)
		}
	}
	acc.own++
	for _, a := range line {
		a.running++
		a.requests.take(now, a.limits.RequestsPerMinute, 1)
	}
	return nil
}

// leave accounts for a request to s that enter let in.
func (b *Broker) leave(acc *account, s *service, c course, used Usage) {
	now := time.Now()
	b.mu.Lock()
	used.Requests = 1
	acc.own--
	acc.usage.add(used)
	b.total.add(used)
	b.traffic[s.name].count(c, used)
	line := acc.line()
	for _, a := range line {
		a.running--
		a.spent += used.Tokens()
		a.tokens.take(now, a.limits.TokensPerMinute, used.Tokens())
	}
	b.mu.Unlock()
	if used.Tokens() == 0 {
		return
	}
	for _, a := range line {
		if err := b.save(a); err != nil {
			b.log.Warn("it is not on the disk", zap.Error(err))
		}
	}
}

// commas writes 1234567 as 1,234,567.
func commas(n uint64) string {
	s := strconv.FormatUint(n, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
