// Package strict decodes JSON that somebody else wrote into a struct and says
// exactly what is wrong with it.
//
// It is the one decoder of every boundary: frames, envelopes, parameters,
// configuration, saved sessions. Names match by exact case, no member may
// stand twice, strings are valid UTF-8, a required member must be there and be
// of its type, and null is a value only for pointers and raw values.
//
//	type params struct {
//		Content string   `json:"content"`             // required
//		When    *string  `json:"when,omitzero"`       // may be missing or null
//		Tags    []string `json:"tags" wire:"default"` // may be missing, not null
//	}
//	err := strict.Unmarshal(data, &p, strict.RejectUnknown)
//
// A field is required unless it is a pointer or carries `wire:"default"`. Every
// field of the struct has a json tag; one tagged `json:"-"` is left alone.
// Struct fields may be strings, booleans, numbers, time.Time, jsontext.Value,
// and structs, slices, string maps and pointers of these; another type panics,
// as it is the caller's mistake. The fields of an embedded struct count as the
// struct's own. Functions are safe for concurrent use and keep
// no reference to their arguments. See SPEC §3.2 and §6.1.
package strict

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/tidwall/gjson"

	"nexus.internal/protocol/suggest"
	"nexus.internal/protocol/textcut"
)

// Unknown says what becomes of members that the struct does not have.
type Unknown bool

const (
	// IgnoreUnknown passes over members the struct does not have.
	IgnoreUnknown Unknown = false
	// RejectUnknown makes them an error.
	RejectUnknown Unknown = true
)

// Error names the member that is wrong. Path is dotted from the top, as in
// attachments[0].path; it is "" for the value as a whole. The text quotes at
// most 200 bytes of it, its beginning and its end.
type Error struct {
	Path    string
	Problem string // "is missing", "is not known", "must be a string, is null"
	Nearest string // of a member that is not known: the one that is written much like it; "" for none
	// Known are the members that there are beside one that is not known, sorted.
	Known []string
}

func (e *Error) Error() string {
	if e.Path == "" {
		return e.Problem
	}
	text := fmt.Sprintf("member %q %s", elide(e.Path), e.Problem)
	if e.Nearest != "" {
		text += fmt.Sprintf("; did you mean %q?", e.Nearest)
	}
	return text
}

// ErrDuplicate is wrapped by [Valid] where a member stands twice in an object
// that is well-formed otherwise.
var ErrDuplicate = errors.New("duplicate member")

// Valid reports why data is not one JSON value in valid UTF-8 without duplicate
// members; nil if it is.
func Valid(data []byte) error {
	if jsontext.Value(data).IsValid() {
		return nil
	}
	return fault(data)
}

// fault reads data that is not valid once more to say why.
func fault(data []byte) error {
	dec := jsontext.NewDecoder(bytes.NewReader(data))
	if _, err := dec.ReadValue(); err != nil {
		if errors.Is(err, io.EOF) {
			return errors.New("there is no value")
		}
		if errors.Is(err, jsontext.ErrDuplicateName) {
			return fmt.Errorf("%w%s", ErrDuplicate, strings.TrimPrefix(explain(err), jsontext.ErrDuplicateName.Error()))
		}
		return errors.New(explain(err))
	}
	if rest := bytes.TrimLeft(data[dec.InputOffset():], " \t\r\n"); len(rest) > 0 {
		return fmt.Errorf("unexpected %q after the end of the value, at offset %d", rest[0], len(data)-len(rest))
	}
	return nil
}

// explain turns an error of the JSON library into one that stands alone.
func explain(err error) string {
	if s, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		msg := fmt.Sprintf("%v at offset %d", s.Err, s.ByteOffset)
		if s.JSONPointer != "" {
			msg += " (in " + elide(string(s.JSONPointer)) + ")"
		}
		return strings.ReplaceAll(msg, "jsontext: ", "")
	}
	return strings.ReplaceAll(err.Error(), "jsontext: ", "")
}

// elide is a path of which at most 200 bytes are left: where it begins, and where in
// the depth the fault is.
func elide(path string) string {
	const first, last = 60, 137
	if len(path) <= first+last {
		return path
	}
	return textcut.Head(path, first) + "…" + textcut.Tail(path, last)
}

// Unmarshal decodes data, a JSON object, into the struct that v points to.
// The error is that of [ValidText], or an *Error that names the member.
func Unmarshal(data []byte, v any, unknown Unknown) error {
	if err := ValidText(data); err != nil {
		return err
	}
	return Fill(data, v, unknown)
}

// ValidText is [Valid] for data that people may have written: the error also names what JSON
// does not have (a byte order mark, comments).
func ValidText(data []byte) error {
	if err := Valid(data); err != nil {
		return fmt.Errorf("%w%s", err, habit(data))
	}
	return nil
}

// habit says what an editor or a person wrote where data, which is not valid, stops being
// JSON: the end of the error; "" for anything else.
func habit(data []byte) string {
	at := brokenAt(data)
	if at < 0 || at > len(data) {
		return ""
	}
	starts := func(marks ...string) bool {
		return slices.ContainsFunc(marks, func(mark string) bool { return bytes.HasPrefix(data[at:], []byte(mark)) })
	}
	switch {
	case at == 0 && starts("\xff\xfe", "\xfe\xff"):
		return ": it is UTF-16: save it as UTF-8"
	case at == 0 && starts("\ufeff"):
		return ": it is a byte order mark: save the text as UTF-8 without one"
	case starts("//", "/*", "#"):
		return ": JSON has no comments"
	}
	return ""
}

// Fill is Unmarshal for data that [Valid] has passed already.
func Fill(data []byte, v any, unknown Unknown) error {
	if quick(data, v, unknown) {
		return nil
	}
	return fill(data, v, unknown)
}

// fill is Fill, and says what is wrong.
func fill(data []byte, v any, unknown Unknown) error {
	if fault := check(gjson.ParseBytes(data), reflect.TypeOf(v).Elem(), unknown); fault != nil {
		return fault
	}
	if err := json.Unmarshal(data, v); err != nil {
		if s, ok := errors.AsType[*json.SemanticError](err); ok {
			return &Error{Path: dotted(string(s.JSONPointer)), Problem: "cannot be read: " + s.Err.Error()}
		}
		return &Error{Problem: err.Error()}
	}
	return nil
}

var (
	rawType  = reflect.TypeFor[jsontext.Value]()
	timeType = reflect.TypeFor[time.Time]()
)

// check walks value beside the type t. It finds what json.Unmarshal passes
// over (missing members, null for a plain type) and names all other faults in
// the same words. The path of a fault begins at value.
func check(value gjson.Result, t reflect.Type, unknown Unknown) *Error {
	if t == rawType {
		return nil
	}
	if t.Kind() == reflect.Pointer {
		if value.Type == gjson.Null {
			return nil
		}
		t = t.Elem()
	}
	want, ok := wants(value, t)
	if !ok {
		return &Error{Problem: fmt.Sprintf("must be %s, is %s", want, have(value))}
	}
	switch {
	case t == timeType:
		return nil
	case t.Kind() == reflect.Struct:
		return checkMembers(value, t, unknown)
	case t.Kind() == reflect.Slice:
		return checkElements(value, t.Elem(), unknown)
	case t.Kind() == reflect.Map:
		var fault *Error
		value.ForEach(func(key, element gjson.Result) bool {
			fault = check(element, t.Elem(), unknown).within(key.Str)
			return fault == nil
		})
		return fault
	}
	return nil
}

func checkElements(array gjson.Result, t reflect.Type, unknown Unknown) (fault *Error) {
	i := 0
	array.ForEach(func(_, element gjson.Result) bool {
		if fault = check(element, t, unknown); fault != nil {
			fault = fault.within("[" + strconv.Itoa(i) + "]")
		}
		i++
		return fault == nil
	})
	return fault
}

// within is the fault as it is named a level further out, where the path is the name of a
// member, or an index in brackets. Paths are made of faults alone: most values have none.
func (e *Error) within(outer string) *Error {
	switch {
	case e == nil:
		return nil
	case e.Path == "" || e.Path[0] == '[':
		e.Path = outer + e.Path
	default:
		e.Path = outer + "." + e.Path
	}
	return e
}

// member is what the rules of this package need to know of a struct field.
type member struct {
	name     string
	typ      reflect.Type
	required bool
	closed   Unknown // tag strict:"closed": unknown members in it are errors for every reader
	filled   string  // tag filled: what the text must be, which may be missing, but not ""
}

// plans holds the []member of each struct type that was met: reflect.Type to
// []member. It grows with the program's types, not with its input.
var plans sync.Map

func planOf(t reflect.Type) []member {
	if plan, ok := plans.Load(t); ok {
		return plan.([]member)
	}
	var plan []member
	for i := range t.NumField() {
		field := t.Field(i)
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if field.Anonymous && name == "" && field.Type.Kind() == reflect.Struct {
			plan = append(plan, planOf(field.Type)...)
		}
		if name == "" || name == "-" {
			continue
		}
		required := field.Type.Kind() != reflect.Pointer && field.Tag.Get("wire") != "default"
		plan = append(plan, member{name, field.Type, required, field.Tag.Get("strict") == "closed", field.Tag.Get("filled")})
	}
	plans.Store(t, plan)
	return plan
}

// checkMembers reports the first fault in the order of the object, then the
// first member that is missing in the order of the struct.
func checkMembers(object gjson.Result, t reflect.Type, unknown Unknown) (fault *Error) {
	plan := planOf(t)
	found := make([]bool, len(plan))
	object.ForEach(func(key, element gjson.Result) bool {
		i := slices.IndexFunc(plan, func(m member) bool { return m.name == key.Str })
		switch {
		case i >= 0:
			found[i] = true
			fault = plan[i].check(element, unknown).within(key.Str)
		case unknown == RejectUnknown:
			fault = unknownMember(key.Str, plan)
		}
		return fault == nil
	})
	if fault != nil {
		return fault
	}
	for i, m := range plan {
		if m.required && !found[i] {
			return &Error{Path: m.name, Problem: "is missing"}
		}
	}
	return nil
}

// check is the function of that name for the value of a member.
func (m member) check(value gjson.Result, unknown Unknown) *Error {
	fault := check(value, m.typ, unknown || m.closed)
	if fault == nil && m.filled != "" && value.Str == "" {
		fault = &Error{Problem: `is "", want ` + m.filled}
	}
	return fault
}

// unknownMember is the fault of a member that is not of the plan.
func unknownMember(name string, plan []member) *Error {
	names := make([]string, len(plan))
	for i, m := range plan {
		names[i] = m.name
	}
	slices.Sort(names)
	return &Error{Path: name, Problem: "is not known", Nearest: suggest.Nearest(name, names), Known: names}
}

// wants names the JSON type that t is written as and reports whether value is
// of it.
func wants(value gjson.Result, t reflect.Type) (string, bool) {
	switch t.Kind() {
	case reflect.String:
		return "a string", value.Type == gjson.String
	case reflect.Bool:
		return "a boolean", value.Type == gjson.True || value.Type == gjson.False
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		_, err := strconv.ParseUint(value.Raw, 10, t.Bits())
		return "a non-negative integer", value.Type == gjson.Number && err == nil
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		_, err := strconv.ParseInt(value.Raw, 10, t.Bits())
		return "an integer", value.Type == gjson.Number && err == nil
	case reflect.Float32, reflect.Float64:
		return "a number", value.Type == gjson.Number
	case reflect.Slice:
		return "an array", value.IsArray()
	case reflect.Struct:
		if t == timeType {
			_, err := time.Parse(time.RFC3339Nano, value.Str)
			return "an RFC 3339 time", value.Type == gjson.String && err == nil
		}
		return "an object", value.IsObject()
	case reflect.Map:
		return "an object", value.IsObject()
	default:
		panic("strict: no rule for " + t.String())
	}
}

func have(value gjson.Result) string {
	switch {
	case value.Type == gjson.Null:
		return "null"
	case value.Type == gjson.String:
		return "a string"
	case value.Type == gjson.Number:
		return fmt.Sprintf("the number %.40s", value.Raw)
	case value.IsArray():
		return "an array"
	case value.IsObject():
		return "an object"
	default:
		return "a boolean"
	}
}

// dotted turns a JSON pointer into the path of an [Error].
func dotted(pointer string) string {
	return strings.ReplaceAll(strings.TrimPrefix(pointer, "/"), "/", ".")
}
