package events

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"nexus.internal/bridge/api"
)

// others is the place in a cursor for all agents that it does not name.
const others = "*"

// cursor is the position of a stream of many agents: for each agent the number of its last
// event that was sent, and for others the number of the last registration that was
// sent, or that the cursor names. Its text is NAME:NUMBER,NAME:NUMBER, sorted by name; the
// number of others is written by a registrationCode.
type cursor map[string]uint64

// text is the cursor as a client sends it back.
func (c cursor) text(code registrationCode) string { return string(c.appendAround("", nil, code)) }

// appendAround appends the text of the cursor, with number in the place of the one of id.
func (c cursor) appendAround(id string, number []byte, code registrationCode) (text []byte) {
	for _, name := range slices.Sorted(maps.Keys(c)) {
		if text != nil {
			text = append(text, ',')
		}
		text = append(append(text, name...), ':')
		switch name {
		case id:
			text = append(text, number...)
		case others:
			text = code.append(text, c[name])
		default:
			text = strconv.AppendUint(text, c[name], 10)
		}
	}
	return text
}

// parseCursor reads a text; ok is false if no server writes it.
func parseCursor(text string, code registrationCode) (cursor, bool) {
	c := cursor{}
	for one := range strings.SplitSeq(text, ",") {
		name, number, _ := strings.Cut(one, ":")
		seq, err := strconv.ParseUint(number, 10, 64)
		readable := err == nil
		if name == others {
			seq, readable = code.read(number)
		}
		if _, twice := c[name]; twice || !readable || name != others && !api.ValidAgentID(name) || len(c) > maxNames {
			return nil, false
		}
		c[name] = seq
	}
	return c, true
}
