package broker

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/go-json-experiment/json"

	"nexus.internal/protocol"
	"nexus.internal/protocol/safefile"
	"nexus.internal/protocol/strict"
	"nexus.internal/supervisor"
)

// maxRecord bounds an account's file, in bytes: several times what one can have.
const maxRecord = 64 << 10

// DamagedError says that what an agent used, and its limits, cannot be read, so that
// neither it nor an agent that it made may start: they would have fewer limits.
type DamagedError struct {
	Agent string
	Path  string
	Err   error // what is wrong with the file
}

func (e *DamagedError) Error() string {
	return fmt.Sprintf("what agent %s used of its limits, %s: %v", e.Agent, e.Path, e.Err)
}

func (e *DamagedError) Unwrap() error { return e.Err }

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
	// Agents is nil in the file of a server that did not bound them.
	Agents *uint64 `json:"agents,omitzero"`

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

// lockWithAccounts reads the accounts of agents, and of those that these come from, as far as
// they are not in memory, and returns with b.mu held; on an error it is not. That is a
// *DamagedError, or a *supervisor.StartError of what may pass. No file is read while b.mu
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
	acc := &account{id: agent, file: b.options.File(agent)}
	if acc.file == "" {
		return acc, nil
	}
	var r record
	data, err := safefile.Read(acc.file, maxRecord)
	if errors.Is(err, fs.ErrNotExist) {
		return acc, nil
	}
	if err == nil {
		err = strict.Unmarshal(data, &r, strict.IgnoreUnknown)
	}
	if errno, ok := errors.AsType[syscall.Errno](err); ok && !errors.Is(errno, fs.ErrPermission) {
		return nil, &supervisor.StartError{Err: fmt.Errorf("read what agent %s used: %w", agent, err)}
	}
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		err = e.Err // the path is told
	}
	if err != nil {
		return nil, &DamagedError{Agent: agent, Path: acc.file, Err: err}
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

// saveAccount writes an account's file anew, so that it is whole at any time. The
// caller holds no lock.
func (b *Broker) saveAccount(acc *account) error {
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
	if acc.hasOwnLimits {
		r.Limits = &recordLimits{
			Tokens: l.Tokens, RequestsPerMinute: l.RequestsPerMinute, TokensPerMinute: l.TokensPerMinute,
			Concurrent: l.Concurrent, Agents: &l.Agents,
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
	if err := os.MkdirAll(filepath.Dir(acc.file), 0o700); err != nil {
		return fmt.Errorf("save what agent %s used: %w", acc.id, err)
	}
	if err := safefile.Replace(acc.file, append(data, '\n'), !b.options.NoSync); err != nil {
		return fmt.Errorf("save what agent %s used: %w", acc.id, err)
	}
	return nil
}
