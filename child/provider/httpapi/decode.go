package httpapi

import (
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
