package protocol

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxSource bounds the source of a message and the id of its sender, in bytes.
const MaxSource = 128

// CheckSource reports why text cannot be the source of a message, or the id of the agent
// that sent it: it is empty, longer than MaxSource bytes, not UTF-8, or has control
// characters.
func CheckSource(text string) error {
	switch {
	case text == "" || len(text) > MaxSource:
		return fmt.Errorf("want 1 to %d bytes, have %d", MaxSource, len(text))
	case !utf8.ValidString(text):
		return errors.New("is not UTF-8")
	case strings.ContainsFunc(text, unicode.IsControl):
		return errors.New("contains a control character")
	default:
		return nil
	}
}
