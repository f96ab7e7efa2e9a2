package events

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"maps"
	"math"
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

// read reads a number; otherServer if it is none of append's. ok is false if no server
// writes such a text: earlier ones wrote decimal digits.
func (c registrationCode) read(text string) (number uint64, ok bool) {
	for _, digit := range []byte(text) {
		if !(digit >= '0' && digit <= '9' || digit >= 'a' && digit <= 'f') {
			return 0, false
		}
	}
	if text == "" || len(text) > 2*aes.BlockSize {
		return 0, false
	}
	block, err := hex.DecodeString(text)
	if err != nil || len(block) != aes.BlockSize {
		return otherServer, true
	}
	c.block.Decrypt(block, block)
	if binary.BigEndian.Uint64(block[8:]) != 0 {
		return otherServer, true
	}
	return binary.BigEndian.Uint64(block), true
}
