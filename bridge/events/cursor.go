package events

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"maps"
	"math"
	"regexp"
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

// position is where a stream of many agents goes on, as a client says it.
type position struct {
	agents map[string]uint64 // the numbers of their last events
	// machines are, by the names of machines, the texts of their numbers for others; "" is the name of a server alone.
	machines map[string]string
}

// parsePosition reads a position in the form of [cursor], or in that of a cluster, which has a number of others for each
// machine: *MACHINE:NUMBER. It reports whether some server may have written it.
func parsePosition(text string) (position, bool) {
	p := position{map[string]uint64{}, map[string]string{}}
	for one := range strings.SplitSeq(text, ",") {
		name, number, _ := strings.Cut(one, ":")
		if machine, ok := strings.CutPrefix(name, others); ok {
			_, readable := digits(number)
			if _, twice := p.machines[machine]; twice || !readable || machine != "" && !machineName.MatchString(machine) || len(p.machines) >= maxNames {
				return p, false
			}
			p.machines[machine] = number
			continue
		}
		seq, err := strconv.ParseUint(number, 10, 64)
		if _, twice := p.agents[name]; twice || err != nil || !api.ValidAgentID(name) || len(p.agents) >= maxNames {
			return p, false
		}
		p.agents[name] = seq
	}
	return p, true
}

// machineName is the form of a machine's name.
var machineName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// parseCursor reads a position as the one of this server, whose others have the numbers that code has written. Those of other
// servers say nothing here.
func parseCursor(text string, code registrationCode) (cursor, bool) {
	p, ok := parsePosition(text)
	c := cursor(p.agents)
	if number, named := p.machines[""]; named {
		c[others] = code.read(number)
	}
	return c, ok
}

// registrationCode writes the numbers of agents' registrations for clients, so that a number does not
// tell how many agents there were: a client sends it back and knows nothing more than
// whether it has changed. It is one server's; safe for concurrent use.
type registrationCode struct{ block cipher.Block }

// otherServer is the number of what this server did not write.
const otherServer = math.MaxUint64

func newRegistrationCode() registrationCode {
	var key [16]byte
	rand.Read(key[:]) // never fails
	block, err := aes.NewCipher(key[:])
	if err != nil {
		panic("events: a key of 16 bytes: " + err.Error())
	}
	return registrationCode{block}
}

// append appends the text of a number: 32 hexadecimal digits.
func (c registrationCode) append(text []byte, number uint64) []byte {
	var block [aes.BlockSize]byte // the other half is zero, by which read knows its own
	binary.BigEndian.PutUint64(block[:], number)
	c.block.Encrypt(block[:], block[:])
	return hex.AppendEncode(text, block[:])
}

// read reads a number of which digits has the form; otherServer if it is none of append's.
func (c registrationCode) read(text string) (number uint64) {
	block, _ := digits(text)
	if len(block) != aes.BlockSize {
		return otherServer
	}
	c.block.Decrypt(block, block)
	if binary.BigEndian.Uint64(block[8:]) != 0 {
		return otherServer
	}
	return binary.BigEndian.Uint64(block)
}

// digits reads hexadecimal digits. ok is false if no server writes such a text: earlier ones wrote decimal digits, of which
// nothing is read.
func digits(text string) (block []byte, ok bool) {
	for _, digit := range []byte(text) {
		if !(digit >= '0' && digit <= '9' || digit >= 'a' && digit <= 'f') {
			return nil, false
		}
	}
	if text == "" || len(text) > 2*aes.BlockSize {
		return nil, false
	}
	block, err := hex.DecodeString(text)
	if err != nil {
		return nil, true
	}
	return block, true
}
