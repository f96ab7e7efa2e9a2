package httpapi

import (
	"bytes"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// escape is the length of an escape of the form \ud83d.
const escape = 6

// Text puts the pieces of one text together. Some services cut it between the
// two escapes of a surrogate pair, \ud83d and \ude00, each of which alone would
// become U+FFFD. The zero value is an empty text.
type Text struct {
	held string // the first half of a pair, as an escape; "" for none
}

// Next gives what is to be passed on of a further piece, in valid UTF-8. Half of
// a pair at its end is held back. A piece that is no string is passed on as the
// JSON that it is, but null is no piece.
func (t *Text) Next(piece jsontext.Value) string {
	switch {
	case len(piece) == 0 || piece.Kind() == 'n' || string(piece) == `""`:
		return ""
	case !IsString(piece):
		return t.Rest() + strings.ToValidUTF8(string(piece), "\uFFFD")
	}
	literal := piece[1 : len(piece)-1]
	half := highSurrogate(literal)
	if t.held == "" && half == "" {
		return unquote(piece)
	}
	whole := `"` + t.held + string(literal[:len(literal)-len(half)]) + `"`
	t.held = half
	return unquote(jsontext.Value(whole))
}

// Rest is what stands for half of a pair whose other half never came.
func (t *Text) Rest() string {
	if t.held == "" {
		return ""
	}
	t.held = ""
	return "\uFFFD"
}

// IsString reports whether a member is there and a string.
func IsString(value jsontext.Value) bool { return value.Kind() == '"' }

// highSurrogate is the escape of the first half of a pair that the inside of a
// JSON string ends with; "" if it does not.
func highSurrogate(literal []byte) string {
	start := len(literal) - escape
	if start < 0 || string(literal[start:start+2]) != `\u` {
		return ""
	}
	before := literal[:start]
	if (len(before)-len(bytes.TrimRight(before, `\`)))%2 == 1 {
		return "" // the backslash is itself escaped
	}
	if unit, err := strconv.ParseUint(string(literal[start+2:]), 16, 16); err != nil || unit < 0xD800 || unit > 0xDBFF {
		return ""
	}
	return string(literal[start:])
}
