package httpapi

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// maxCount bounds a number that a service says, as the largest that JSON holds
// exactly.
const maxCount = 1 << 53

// lenient is how services are read: each has ways of its own, and what one says
// beside its answer must not cost the answer.
var lenient = json.JoinOptions(
	jsontext.AllowDuplicateNames(true),
	jsontext.AllowInvalidUTF8(true),
	json.WithUnmarshalers(json.JoinUnmarshalers(json.UnmarshalFromFunc(readString), json.UnmarshalFromFunc(readCount))),
)

// Decode reads what a service sent into the struct that v points to. Members may
// be missing, unknown, null or there twice (the last one holds). A string takes
// the text of a number too; a uint64 is at most 2^53, and 0 for less than that;
// of any other type, both are left as they are. Invalid UTF-8 becomes U+FFFD, but
// in a jsontext.Value, which stays as it came. The error, a *MalformedError, says
// where an object or an array is missing, or why data is no JSON.
func Decode(data []byte, v any) error {
	err := json.Unmarshal(data, v, lenient)
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*json.SemanticError](err); ok && e.GoType != nil {
		want := "an object"
		if e.GoType.Kind() == reflect.Slice {
			want = "an array"
		}
		subject := "it"
		if e.JSONPointer != "" {
			subject = fmt.Sprintf("member %q", strings.ReplaceAll(string(e.JSONPointer[1:]), "/", "."))
		}
		return &MalformedError{Problem: subject + " is not " + want}
	}
	if e, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		err = e.Err // without the names of members, which may be of any length
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		err = errors.New("unexpected end of JSON input")
	}
	return &MalformedError{Problem: strings.TrimPrefix(err.Error(), "jsontext: ")}
}

func readString(dec *jsontext.Decoder, s *string) error {
	value, err := dec.ReadValue()
	switch {
	case err != nil:
		return err
	case value.Kind() == '"':
		*s = unquote(value)
	case value.Kind() == '0':
		*s = string(value)
	}
	return nil
}

func readCount(dec *jsontext.Decoder, n *uint64) error {
	value, err := dec.ReadValue()
	if err != nil || value.Kind() != '0' {
		return err
	}
	number, _ := strconv.ParseFloat(string(value), 64) // beyond its range: an infinity, which is cut
	*n = uint64(min(max(0, number), maxCount))
	return nil
}

// unquote decodes a JSON string. Half of a surrogate pair and invalid UTF-8
// become U+FFFD.
func unquote(literal jsontext.Value) string {
	decoded, _ := jsontext.AppendUnquote(nil, literal) // the error tells of these alone
	return string(decoded)
}

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
