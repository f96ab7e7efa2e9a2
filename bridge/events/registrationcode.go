package events

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"math"
)

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
