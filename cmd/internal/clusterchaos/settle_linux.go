package clusterchaos

import (
	"bytes"
	"context"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/client"
)

// together is how many agents are looked at at a time.
const together = 8

// each does something for each agent, by its first talker, for some at a time.
func (r *run) each(do func(agent int, t *talker)) {
	var work sync.WaitGroup
	places := make(chan struct{}, together)
	for agent := range r.o.Agents {
		places <- struct{}{}
		work.Go(func() {
			defer func() { <-places }()
			do(agent, r.talkers[2*agent])
		})
	}
	work.Wait()
}

// back waits until each agent answers at each machine, beside what is still asked of it, and returns how long that took.
func (r *run) back(ctx context.Context) time.Duration {
	ctx, cancel := context.WithTimeout(ctx, backTimeout)
	defer cancel()
	began := time.Now()
	r.each(func(_ int, t *talker) {
		for _, m := range r.machines {
			for !answers(ctx, m, t.agent) && pause(ctx, 100*time.Millisecond) {
			}
		}
	})
	if ctx.Err() != nil {
		r.broken("not all agents answer at all machines %s after the attack", backTimeout)
	}
	return time.Since(began)
}

// answers reports whether an agent answers at a machine, soon.
func answers(ctx context.Context, m *machine, agent string) bool {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	c := m.call()
	if c == nil {
		return false
	}
	_, err := client.Do(ctx, c, agent, api.GetModel, api.None{})
	return err == nil
}

// settle looks at what all machines have: it repeats all sends, reads all conversations and all events, asks whose the agents are, and by which owners what the machines
// keep was written.
func (r *run) settle(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	r.each(func(_ int, t *talker) {
		for _, m := range r.machines { // one that was cut off until now reads what it had, for a moment
			for t.read(ctx, m, true) == nil && pause(ctx, 100*time.Millisecond) {
			}
		}
	})
	if ctx.Err() != nil {
		r.broken("not all conversations are read at all machines %s after the attack", settleTimeout)
		return
	}
	r.each(func(agent int, t *talker) {
		for _, of := range []*talker{t, r.talkers[2*agent+1]} {
			for _, id := range of.last() {
				of.send(ctx, id)
			}
		}
		t.send(ctx, t.agent+"-next") // behind what nobody waits for any more
	})
	r.forgive()
	r.each(func(agent int, t *talker) {
		last := t.agent + "-last"
		t.send(ctx, last)
		f := r.watching[agent]
		for f.ended(last) == "" {
			if !pause(ctx, 20*time.Millisecond) {
				r.broken("no machine has told whoever follows %s of the end of %s", t.agent, last)
				return
			}
		}
		first := t.read(ctx, r.machines[0], false)
		for _, m := range r.machines {
			if got := t.read(ctx, m, false); !slices.Equal(got, first) {
				r.broken("%s has %d turns at %s and %d at %s", t.agent, len(first), r.machines[0].name, len(got), m.name)
			}
			f.replay(ctx, m, last)
		}
	})
	for _, m := range r.machines {
		r.checkOwners(ctx, m)
	}
	r.checkWriters(ctx, r.machines[0])
	r.checkEnds()
}

// checkWriters has a machine read all that the machines keep of all agents: no owner has written behind a later one.
func (r *run) checkWriters(ctx context.Context, m *machine) {
	cmd := exec.CommandContext(ctx, r.o.Nexus, "cluster", "backup", filepath.Join(r.o.Dir, "kept.tar.gz"), "--home", m.home())
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	err := m.space.within(cmd.Start)
	if err == nil {
		err = cmd.Wait()
	}
	if err != nil {
		r.broken("what the machines keep is not read whole: %v: %s", err, &said)
	}
}

// checkOwners has a machine say which machines have the agents: one machine has each.
func (r *run) checkOwners(ctx context.Context, m *machine) {
	owners := map[string][]string{}
	result, err := client.Do(ctx, m.call(), "", api.ListAgents, api.None{})
	if err != nil {
		r.broken("%s lists no agents: %v", m.name, err)
		return
	}
	for _, agent := range result.Agents {
		owners[agent.AgentID] = append(owners[agent.AgentID], agent.Node)
	}
	for _, t := range r.talkers {
		if n := len(owners[t.agent]); n != 1 && t.number%2 == 0 {
			r.broken("%s runs on %d machines, as %s says: %v", t.agent, n, m.name, owners[t.agent])
		}
	}
}

// checkEnds compares what senders were told with what the events tell.
func (r *run) checkEnds() {
	ends := map[string]*follower{}
	for _, f := range r.watching {
		ends[f.agent] = f
	}
	r.mu.Lock()
	history := slices.Clone(r.history)
	r.mu.Unlock()
	for _, operation := range history {
		asked, told := operation.Input.(op), operation.Output.(answer)
		if asked.send == "" || told.outcome == unknown {
			continue
		}
		if by := ends[asked.agent].ended(asked.send); by != "" && by != told.outcome {
			r.broken("%s was answered as %s, and events tell that it %s", asked.send, told.outcome, by)
		}
	}
	for _, f := range r.watching {
		events, gaps := f.counts()
		r.add("events seen", events)
		r.add("gaps in events, that were told", gaps)
	}
}

// takeovers measures how long the agents of a machine, which is killed then, are not answered for. What comes after the end of ctx is not counted; wait waits
// until nothing is measured any more.
func (r *run) takeovers(ctx context.Context, of *machine) (wait func()) {
	var measuring sync.WaitGroup
	others := slices.DeleteFunc(slices.Clone(r.machines), func(m *machine) bool { return m == of })
	limited, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	c := others[0].call()
	if c == nil {
		return measuring.Wait
	}
	result, err := client.Do(limited, c, "", api.ListAgents, api.None{})
	if err != nil {
		return measuring.Wait // under attack it need not answer
	}
	began := time.Now()
	for i, agent := range result.Agents {
		if agent.Node != of.name {
			continue
		}
		measuring.Go(func() {
			for at := i; pause(ctx, 100*time.Millisecond); at++ {
				if answers(ctx, others[at%len(others)], agent.AgentID) {
					r.taken(time.Since(began))
					return
				}
			}
		})
	}
	return measuring.Wait
}
