package wire

import (
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/tidwall/gjson"
)

// escape is the length of an escape of the form \ud83d.
const escape = 6

// Text puts the pieces of one text together. Some services cut it between the
// two escapes of a surrogate pair, \ud83d and \ude00, each of which alone would
// become U+FFFD. The zero value is an empty text.
type Text struct {
	held string // the first half of a pair, as an escape; "" for none
}

// Next gives what is to be passed on of a further piece, in valid UTF-8: the
// string at path in object, which the SDK decoded. Half of a pair at its end is
// held back.
func (t *Text) Next(decoded, object, path string) string {
	if decoded == "" {
		return ""
	}
	value := gjson.Get(object, path)
	if value.Type != gjson.String {
		return t.Rest() + strings.ToValidUTF8(decoded, "\uFFFD")
	}
	literal := value.Raw[1 : len(value.Raw)-1]
	half := highSurrogate(literal)
	if t.held == "" && half == "" {
		return strings.ToValidUTF8(decoded, "\uFFFD")
	}
	literal, t.held = t.held+literal, half
	return unquote(strings.TrimSuffix(literal, half))
}

// Rest is what stands for half of a pair whose other half never came.
func (t *Text) Rest() string {
	if t.held == "" {
		return ""
	}
	t.held = ""
	return "\uFFFD"
}

// highSurrogate is the escape of the first half of a pair that the inside of a
// JSON string ends with; "" if it does not.
func highSurrogate(literal string) string {
	start := len(literal) - escape
	if start < 0 || literal[start:start+2] != `\u` {
		return ""
	}
	before := literal[:start]
	if (len(before)-len(strings.TrimRight(before, `\`)))%2 == 1 {
		return "" // the backslash is itself escaped
	}
	if unit, err := strconv.ParseUint(literal[start+2:], 16, 16); err != nil || unit < 0xD800 || unit > 0xDBFF {
		return ""
	}
	return literal[start:]
}

// unquote decodes the inside of a JSON string; a lone half becomes U+FFFD.
func unquote(literal string) string {
	decoded, _ := jsontext.AppendUnquote(nil, `"`+literal+`"`) // the error tells of a lone half alone
	return string(decoded)
}
