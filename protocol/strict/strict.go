// Package strict decodes JSON that somebody else wrote into a struct and says
// exactly what is wrong with it.
//
// It is the one decoder of every boundary: frames, envelopes, parameters,
// configuration, saved sessions. Names match by exact case, no member may
// stand twice, strings are valid UTF-8, a required member must be there and be
// of its type, and null is a value only for pointers and raw values.
//
//	type params struct {
//		Content string  `json:"content"`                  // required
//		When    *string `json:"when,omitzero"`            // may be missing or null
//		Tags    []Tag   `json:"tags" wire:"default"`      // may be missing, not null
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
// The error is that of [Valid], or an *Error that names the member.
func Unmarshal(data []byte, v any, unknown Unknown) error {
	if err := Valid(data); err != nil {
		return err
	}
	return Fill(data, v, unknown)
}

// Fill is Unmarshal for data that [Valid] has passed already.
func Fill(data []byte, v any, unknown Unknown) error {
	if err := check(gjson.ParseBytes(data), reflect.TypeOf(v).Elem(), "", unknown); err != nil {
		return err
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
// the same words.
func check(value gjson.Result, t reflect.Type, path string, unknown Unknown) error {
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
		return &Error{Path: path, Problem: fmt.Sprintf("must be %s, is %s", want, have(value))}
	}
	switch {
	case t == timeType:
		return nil
	case t.Kind() == reflect.Struct:
		return checkMembers(value, t, path, unknown)
	case t.Kind() == reflect.Slice:
		return checkElements(value, t.Elem(), path, unknown)
	case t.Kind() == reflect.Map:
		var err error
		value.ForEach(func(key, element gjson.Result) bool {
			err = check(element, t.Elem(), join(path, key.Str), unknown)
			return err == nil
		})
		return err
	}
	return nil
}

func checkElements(array gjson.Result, t reflect.Type, path string, unknown Unknown) (err error) {
	i := 0
	array.ForEach(func(_, element gjson.Result) bool {
		err = check(element, t, path+"["+strconv.Itoa(i)+"]", unknown)
		i++
		return err == nil
	})
	return err
}

// member is what the rules of this package need to know of a struct field.
type member struct {
	name     string
	typ      reflect.Type
	required bool
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
		plan = append(plan, member{name: name, typ: field.Type, required: required})
	}
	plans.Store(t, plan)
	return plan
}

// checkMembers reports the first fault in the order of the object, then the
// first member that is missing in the order of the struct.
func checkMembers(object gjson.Result, t reflect.Type, path string, unknown Unknown) (err error) {
	plan := planOf(t)
	found := make([]bool, len(plan))
	object.ForEach(func(key, element gjson.Result) bool {
		i := slices.IndexFunc(plan, func(m member) bool { return m.name == key.Str })
		switch {
		case i >= 0:
			found[i] = true
			err = check(element, plan[i].typ, join(path, key.Str), unknown)
		case unknown == RejectUnknown:
			err = &Error{Path: join(path, key.Str), Problem: "is not known", Nearest: nearest(key.Str, plan)}
		}
		return err == nil
	})
	if err != nil {
		return err
	}
	for i, m := range plan {
		if m.required && !found[i] {
			return &Error{Path: join(path, m.name), Problem: "is missing"}
		}
	}
	return nil
}

// nearest is the member that a misspelt name was probably meant to be.
func nearest(name string, plan []member) string {
	names := make([]string, len(plan))
	for i, m := range plan {
		names[i] = m.name
	}
	return suggest.Nearest(name, names)
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

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// dotted turns a JSON pointer into the path of an [Error].
func dotted(pointer string) string {
	return strings.ReplaceAll(strings.TrimPrefix(pointer, "/"), "/", ".")
}
