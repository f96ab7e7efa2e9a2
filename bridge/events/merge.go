package events

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"

	"nexus.internal/protocol"
	"nexus.internal/supervisor"
)

// This file is what a stream of the agents of all machines makes of the events of a part.

var errBadPart = errors.New("a machine tells of events as none does")

// event takes one event of a part.
func (c *machinesStream) event(p *machinePart, block []byte) error {
	id, name, rest := readBlock(block)
	switch name {
	case "": // a comment
		return nil
	case "open":
		late := p.others == "" && p.since && c.asked.fresh() // it begins with what comes now
		gap, err := c.opened(p, block)
		if err == nil {
			c.tell(p, stateUp, gap || late)
		}
		return err
	case "end":
		var e protocol.StreamEnd
		_ = json.Unmarshal(dataOf(rest), &e)
		switch e.Reason {
		case endSlow:
			return supervisor.ErrSlow
		case endTooMany:
			return errTooManyAgents
		}
		c.leave(p)
		return nil
	}
	at, ok := parsePosition(id)
	if id != "" && !ok {
		return fmt.Errorf("%w: the position %q", errBadPart, id)
	}
	if text := at.machines[""]; text != "" {
		p.others, c.text.agent = text, ""
	}
	switch name {
	case partBegun, partMoved:
		var e partEvent
		if err := json.Unmarshal(dataOf(rest), &e); err != nil {
			return fmt.Errorf("%w: %w", errBadPart, err)
		}
		if name == partMoved {
			c.moved(p, e.AgentID)
			return nil
		}
		return c.begun(p, e.AgentID, e.After)
	}
	return c.pass(p, name, rest, at)
}

// pass passes on an event of an agent.
func (c *machinesStream) pass(p *machinePart, name string, rest []byte, at position) error {
	agent, ok := agentOf(dataOf(rest))
	if !ok {
		return fmt.Errorf("%w: %q of no agent", errBadPart, name)
	}
	place := c.agents[agent]
	if place == nil || place.from != p.machine {
		if place != nil && name == "agent_removed" && place.next == p.machine {
			place.next = ""
		}
		return nil
	}
	switch seq, numbered := at.agents[agent]; {
	case name == "agent_removed":
		c.text.agent = ""
		delete(c.agents, agent)
		if place.next != "" { // another agent of that name
			c.agents[agent] = &agentPlace{seq: place.nextSeq, next: place.next, nextSeq: place.nextSeq}
			c.goOn(place)
		}
		c.buf = append(append(append(c.buf, "id: "...), c.position()...), '\n')
	case numbered:
		place.seq = seq
		before, after := c.around(agent)
		c.buf = append(append(c.buf, "id: "...), before...)
		c.buf = append(append(strconv.AppendUint(c.buf, seq, 10), after...), '\n')
	}
	c.buf = append(c.buf, rest...)
	return nil
}

// opened takes where a part begins. gap says that there may have been agents that it does not tell of.
func (c *machinesStream) opened(p *machinePart, block []byte) (gap bool, err error) {
	id, _, rest := readBlock(block)
	at, ok := parsePosition(id)
	var e protocol.StreamOpen
	if err := json.Unmarshal(dataOf(rest), &e); err != nil || !ok {
		return false, fmt.Errorf("%w: it begins with %q", errBadPart, block)
	}
	p.open, p.others, c.text.agent = true, at.machines[""], ""
	for id, seq := range at.agents {
		if err := c.begun(p, id, seq); err != nil {
			return false, err
		}
	}
	return e.Gap, nil
}

// begun takes that a part goes on with an agent after a number.
func (c *machinesStream) begun(p *machinePart, id string, after uint64) error {
	place := c.agents[id]
	c.text.agent = ""
	switch {
	case place == nil:
		if err := c.makeRoom(); err != nil {
			return err
		}
		c.agents[id] = &agentPlace{seq: after, from: p.machine}
	case place.from == p.machine || place.from == "" && place.seq == after:
		*place = agentPlace{seq: after, from: p.machine}
	default: // the client has another number
		place.next, place.nextSeq = p.machine, after
		if place.from == "" {
			c.goOn(place)
		}
	}
	return nil
}

// moved takes that a machine does not have an agent any more.
func (c *machinesStream) moved(p *machinePart, id string) {
	switch place := c.agents[id]; {
	case place == nil:
	case place.from == p.machine:
		place.from = ""
		c.goOn(place)
	case place.next == p.machine:
		place.next = ""
	}
}

// makeRoom drops an agent that no part goes on with, if there are as many as one stream can follow.
func (c *machinesStream) makeRoom() error {
	if len(c.agents) < maxNames {
		return nil
	}
	for id, place := range c.agents {
		if place.from == "" {
			delete(c.agents, id)
			return nil
		}
	}
	return errTooManyAgents
}

// position is the client's.
func (c *machinesStream) position() string {
	before, _ := c.around("")
	return strings.TrimSuffix(before, ",")
}

// around is the text of the client's position before and after the number of one agent.
func (c *machinesStream) around(agent string) (before, after string) {
	if agent != "" && c.text.agent == agent {
		return c.text.before, c.text.after
	}
	all := make([]string, 0, len(c.parts)+len(c.agents))
	for _, p := range c.parts {
		if p.others != "" {
			all = append(all, others+p.machine+":"+p.others)
		}
	}
	for id, place := range c.agents {
		if id == agent {
			all = append(all, id+":")
		} else {
			all = append(all, id+":"+strconv.FormatUint(place.seq, 10))
		}
	}
	slices.Sort(all)
	text := strings.Join(all, ",")
	if agent == "" {
		return text, ""
	}
	length := len(strings.Join(all[:slices.Index(all, agent+":")+1], ","))
	c.text.agent, c.text.before, c.text.after = agent, text[:length], text[length:]
	return c.text.before, c.text.after
}
