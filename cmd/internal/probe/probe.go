package probe

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"

	"nexus.internal/cmd/internal/playedmodel"
	"nexus.internal/protocol"
	"nexus.internal/protocol/proctree"
	"nexus.internal/protocol/textcut"
)

const (
	// openPatience is how long a protocol may take until the program takes prompts by it, of several that are tried.
	openPatience = 20 * time.Second
	// turnPatience bounds each turn.
	turnPatience = 60 * time.Second
	// endPatience is how long processes may take to be gone.
	endPatience = 5 * time.Second
	// shortText and longText are how much text has come of a turn in which something is done then, in
	// bytes: what a program writes for a byte of text shows in the latter.
	shortText, longText = 20, 400
	// largePrompt is how long a prompt is that not every program takes, in bytes.
	largePrompt = 300_000
)

// Options say what is probed.
type Options struct {
	Child string // path of nexus-child
	// Program is what is probed; its Protocol is found out if it is "".
	Program protocol.AgentProgram
	// Env are further variables of its environment, as KEY=VALUE: they go before those by which it
	// finds the played model.
	Env []string
	// Model is the player that the program is to ask, which stays open; nil for one of the probe's own.
	Model *playedmodel.Player
	// Version is what the program says of its version to people; "" if that is not known.
	Version string
	// Progress is told what is tried; nil tells nobody.
	Progress Progress
}

// Progress hears what is tried.
type Progress interface{ Trying(what string) }

// probe is one run.
type probe struct {
	Options
	model *playedmodel.Player
	dir   string // of its own: home, work
	card  *Card
	known bool // the protocol is
}

// Run probes a program. The error says why nothing could be found out; what went wrong with a part
// stands in the card.
func Run(ctx context.Context, o Options) (*Card, error) {
	dir, err := os.MkdirTemp("", "nexus-probe-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return nil, err
	}
	for _, name := range []string{"home", "work"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			return nil, err
		}
	}
	m := o.Model
	if m == nil {
		if m, err = playedmodel.New(); err != nil {
			return nil, err
		}
		defer m.Close()
	}
	p := &probe{Options: o, model: m, dir: dir, card: &Card{Command: o.Program.Command, Version: o.Version, ProbedAt: time.Now().UTC().Format(time.DateOnly)}}
	if err := p.find(ctx); err != nil {
		return nil, err
	}
	p.step(ctx, "a conversation, and a turn that is cancelled", p.converse)
	if m.Asked() != "" { // else it does not speak as long as the probe would like
		p.step(ctx, "a crash in the middle of a turn", p.crash)
		p.step(ctx, "what is left of a killed nexus-child", p.remains)
	}
	p.step(ctx, "the end of stdin", p.endOfInput)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if p.card.Dialect = m.Asked(); p.card.Dialect == "" {
		p.card.Problems = append(p.card.Problems, "the program asked no model that the probe plays: name one by --env, or it needs none")
	}
	return p.card, nil
}

// step finds out one thing; what goes wrong is a problem of the card.
func (p *probe) step(ctx context.Context, name string, find func(context.Context) error) {
	p.trying(name)
	if err := find(ctx); err != nil {
		p.card.Problems = append(p.card.Problems, name+": "+textcut.Clip(err.Error(), 500))
	}
}

func (p *probe) trying(what string) {
	if p.Progress != nil {
		p.Progress.Trying(what)
	}
}

// start starts the program under a nexus-child, in a session of that name.
func (p *probe) start(ctx context.Context, session string, again bool) (*agent, error) {
	set := map[string]bool{}
	environ := []string{"PATH=" + os.Getenv("PATH"), "HOME=" + p.dir, "LANG=C.UTF-8", "NEXUS_HOME=" + filepath.Join(p.dir, "home")}
	var names []string
	for _, pair := range slices.Concat(p.Env, p.model.Environment()) {
		if name, _, _ := strings.Cut(pair, "="); !set[name] {
			set[name] = true
			environ, names = append(environ, pair), append(names, name)
		}
	}
	args := []string{"--session-updates", "--approvals=allow", "--log-level=error", "--log-format=text", "--cwd=" + filepath.Join(p.dir, "work"), "--pass-env=" + strings.Join(names, ",")}
	if again {
		return start(ctx, p.Child, environ, p.dir, append(args, "--continue="+session)...)
	}
	told := p.Program
	told.Command = slices.Concat(told.Command, protocol.ModelArguments(told.Protocol, p.model.URL()))
	program, err := programFlag(told)
	if err != nil {
		return nil, err
	}
	return start(ctx, p.Child, environ, p.dir, append(args, "--session="+session, program)...)
}

// ready waits until the program takes prompts.
func (p *probe) ready(ctx context.Context, session string, again bool) (*agent, error) {
	a, err := p.start(ctx, session, again)
	if err != nil {
		return nil, err
	}
	patience := openPatience
	if p.known {
		patience = protocol.ProgramStartTimeout
	}
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("not ready in %s", patience))
	defer cancel()
	if _, err := next[protocol.Ready](ctx, a, nil); err != nil {
		a.end()
		return nil, err
	}
	return a, nil
}

// opened is a program that was tried at a protocol.
type opened struct {
	agent *agent
	err   error
}

// find finds out by which protocol the program is spoken to. All are tried at once, as a program that
// does not speak one may say nothing for as long as it is waited for; the first that answers a prompt
// counts.
func (p *probe) find(ctx context.Context) error {
	protocols := protocol.ProgramProtocols()
	if p.known = p.Program.Protocol != ""; p.known {
		protocols = []string{p.Program.Protocol}
	}
	p.trying("the protocols " + strings.Join(protocols, ", "))
	tries := make([]chan opened, len(protocols))
	var starting sync.WaitGroup
	defer starting.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // of those that are not waited for
	for i, name := range protocols {
		tries[i] = make(chan opened, 1)
		starting.Go(func() {
			at := *p
			at.Program.Protocol, at.Program.Kind = name, name
			a, err := at.ready(ctx, "find-"+name, false)
			if err == nil {
				if err = at.answers(ctx, a); err != nil {
					a.end()
				}
			}
			tries[i] <- opened{a, err}
		})
	}
	var problems []string
	for i, name := range protocols {
		if p.card.Protocol != "" { // a later one: it is not wanted
			cancel()
			if try := <-tries[i]; try.err == nil {
				try.agent.end()
			}
			continue
		}
		try := <-tries[i]
		if try.err != nil {
			problems = append(problems, fmt.Sprintf("%s: %v", name, try.err))
			continue
		}
		try.agent.end()
		p.card.Protocol, p.Program.Protocol, p.Program.Kind = name, name, name
	}
	if p.card.Protocol != "" {
		p.known = true
		return nil
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return fmt.Errorf("%s takes no prompt by any protocol that nexus knows:\n  %s", p.Program.Name(), strings.Join(problems, "\n  "))
}

// answers reports why the program does not answer a prompt.
func (p *probe) answers(ctx context.Context, a *agent) error {
	ctx, cancel := context.WithTimeoutCause(ctx, turnPatience, fmt.Errorf("no answer in %s", turnPatience))
	defer cancel()
	t := a.prompt(ctx, "Answer in one word. "+playedmodel.Short, nil)
	if t.err == nil && t.text == "" {
		return errors.New("it answered without a text")
	}
	return t.err
}

// converse looks at a conversation: memory over turns, a large prompt, a turn that is cancelled.
func (p *probe) converse(ctx context.Context) error {
	at := time.Now()
	a, err := p.ready(ctx, "talk", false)
	if err != nil {
		return err
	}
	p.card.StartMS = time.Since(at).Milliseconds()
	defer a.end()
	ctx, cancel := context.WithTimeout(ctx, 3*turnPatience)
	defer cancel()
	mark := strings.ToLower(rand.Text()[:10])
	t := a.prompt(ctx, "Remember this: "+playedmodel.WordMark+mark+". "+playedmodel.Short, nil)
	if t.err != nil {
		return t.err
	}
	p.card.FirstTextMS = t.first.Milliseconds()
	p.card.Remembers = strings.Contains(a.prompt(ctx, "Which word was that? "+playedmodel.Recall, nil).text, mark)
	if state, err := ask(ctx, a, protocol.GetState{}); err == nil && state.Program != nil {
		p.card.Name, p.card.Version = state.Program.Name, cmp.Or(state.Program.Version, p.card.Version)
		p.card.Commands = state.Program.Commands
	}
	p.card.MemoryBytes = p.memory(a)
	before := bytesRead(a.cmd.Process.Pid)
	var cancelled time.Time
	t = a.promptUntil(ctx, "Count. "+playedmodel.Long, longText, func() {
		cancelled = time.Now()
		_ = a.send(protocol.Abort{ID: "abort"}) // a failure shows in the turn
	})
	switch {
	case t.err != nil:
		p.card.Problems = append(p.card.Problems, "cancel: "+t.err.Error())
	case t.cancelled:
		p.card.CancelMS = max(1, time.Since(cancelled).Milliseconds())
	case p.model.Asked() != "":
		p.card.Problems = append(p.card.Problems, "cancel: the turn went on to its end")
	}
	if n := len(t.text); n > 0 && p.model.Asked() != "" { // else it is too short a text
		p.card.WireBytesPerByte = float64(bytesRead(a.cmd.Process.Pid)-before) / float64(n)
	}
	large := a.prompt(ctx, strings.Repeat("filler ", largePrompt/7)+playedmodel.Short, nil)
	p.card.LargePrompt = large.err == nil && large.text != ""
	return nil
}

// memory is what the program takes with all that it started, without nexus-child itself.
func (p *probe) memory(a *agent) (total int64) {
	for _, pid := range descendants(a) {
		if n, err := proctree.Memory(pid); err == nil {
			total += n
		}
	}
	return total
}

// descendants are the processes below a nexus-child that are not its own reapers.
func descendants(a *agent) (programs []int) {
	below, _ := proctree.Descendants(a.cmd.Process.Pid) // what cannot be read is gone
	self, _ := os.Readlink(fmt.Sprintf("/proc/%d/exe", a.cmd.Process.Pid))
	for _, pid := range below {
		if exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid)); err == nil && exe != self {
			programs = append(programs, pid)
		}
	}
	return programs
}

// crash kills the program in the middle of its text, and has another process go on.
func (p *probe) crash(ctx context.Context) error {
	a, err := p.ready(ctx, "crash", false)
	if err != nil {
		return err
	}
	defer a.end()
	ctx, cancel := context.WithTimeout(ctx, 3*turnPatience)
	defer cancel()
	mark := strings.ToLower(rand.Text()[:10])
	if t := a.prompt(ctx, "Remember this: "+playedmodel.WordMark+mark+". "+playedmodel.Short, nil); t.err != nil {
		return t.err
	}
	t := a.prompt(ctx, "Count. "+playedmodel.Long, func() {
		for _, pid := range descendants(a) {
			if process, err := os.FindProcess(pid); err == nil {
				_ = process.Kill() // it may be gone already
			}
		}
	})
	if t.err == nil {
		return errors.New("the turn ended well though its program was killed")
	}
	a.end()
	again, err := p.ready(ctx, "crash", true)
	if err != nil {
		return fmt.Errorf("start it again: %w", err)
	}
	defer again.end()
	page, err := ask(ctx, again, protocol.GetMessages{})
	if err != nil {
		return err
	}
	said, err := json.Marshal(t.text)
	if err != nil {
		return err
	}
	p.card.KeepsPartialText = len(t.text) > 0 && strings.Contains(string(page.Messages), string(said[1:len(said)-1]))
	recalled := again.prompt(ctx, "Which word was that? "+playedmodel.Recall, nil)
	state, err := ask(ctx, again, protocol.GetState{})
	if err == nil && state.Program != nil {
		p.card.Resumed, p.card.ResumeReason = state.Program.Resumed, state.Program.ResumeReason
	}
	p.card.RemembersAfterCrash = strings.Contains(recalled.text, mark)
	return errors.Join(recalled.err, err)
}

// remains kills nexus-child in the middle of a turn and looks at what lives on.
func (p *probe) remains(ctx context.Context) error {
	a, err := p.ready(ctx, "remains", false)
	if err != nil {
		return err
	}
	defer a.end()
	ctx, cancel := context.WithTimeout(ctx, turnPatience)
	defer cancel()
	var below []int
	a.prompt(ctx, "Count. "+playedmodel.Long, func() {
		below = descendants(a)
		_ = a.cmd.Process.Kill() // the turn shows if it lives
	})
	p.card.Remains = left(ctx, below)
	return nil
}

// endOfInput closes stdin and waits.
func (p *probe) endOfInput(ctx context.Context) error {
	a, err := p.ready(ctx, "input", false)
	if err != nil {
		return err
	}
	defer a.end()
	below, at := descendants(a), time.Now()
	if err := a.stdin.Close(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, turnPatience, errors.New("it does not end with its stdin"))
	defer cancel()
	if _, err := next[protocol.Ready](ctx, a, nil); ctx.Err() != nil {
		return err
	}
	p.card.EndMS = time.Since(at).Milliseconds()
	p.card.Remains += left(ctx, below)
	return nil
}

// left is how many of the processes are still there after a while.
func left(ctx context.Context, pids []int) (n int) {
	ctx, cancel := context.WithTimeout(ctx, endPatience)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		n = 0
		for _, pid := range pids {
			if s, err := proctree.ReadStat(pid); err == nil && s.State != 'Z' {
				n++
			}
		}
		if n == 0 {
			return 0
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return n
		}
	}
}
