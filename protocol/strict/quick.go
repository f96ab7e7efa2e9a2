package strict

import (
	"bytes"
	"encoding"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// This file decodes what our own programs write, and most of what others do, in one walk: objects
// without blanks, of texts, booleans, integers that are not negative, raw values, and lists and
// objects of these. It never says what is wrong: it leaves that, and whatever else it does not
// read, to the two walks of [Fill].

// quickKind is what a value is decoded as.
type quickKind uint8

const (
	quickNever quickKind = iota // it is left to Fill
	quickString
	quickBool
	quickInt
	quickUint
	quickRaw
	quickStruct
	quickPointer
	quickSlice
)

// quickMember is a member of a struct.
type quickMember struct {
	name     string
	index    []int
	kind     quickKind
	required bool
}

// maxQuick is how many members a struct may have.
const maxQuick = 64

// quickPlans holds the []quickMember of each struct type that was met; nil for one that is
// left to Fill.
var quickPlans sync.Map

func quickPlanOf(t reflect.Type) []quickMember {
	if plan, ok := quickPlans.Load(t); ok {
		return plan.([]quickMember)
	}
	plan, ok := quickMembers(t, nil)
	names := map[string]bool{}
	for _, m := range plan {
		names[m.name] = true
	}
	if !ok || len(plan) > maxQuick || len(names) < len(plan) {
		plan = nil
	}
	quickPlans.Store(t, plan)
	return plan
}

func quickMembers(t reflect.Type, outer []int) (plan []quickMember, ok bool) {
	for i := range t.NumField() {
		field := t.Field(i)
		index := append(outer[:len(outer):len(outer)], i)
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch {
		case name == "-":
			continue
		case field.Anonymous && name == "" && options == "" && field.Type.Kind() == reflect.Struct:
			inner, ok := quickMembers(field.Type, index)
			if !ok {
				return nil, false
			}
			plan = append(plan, inner...)
			continue
		case name == "" || strings.ContainsAny(name, `'"\`):
			return nil, false
		}
		for option := range strings.SplitSeq(options, ",") {
			if option != "" && option != "omitzero" && option != "omitempty" {
				return nil, false
			}
		}
		required := field.Type.Kind() != reflect.Pointer && field.Tag.Get("wire") != "default"
		kind := quickKindOf(field.Type)
		if field.Tag.Get("strict") != "" || field.Tag.Get("filled") != "" {
			kind = quickNever // rules of their own
		}
		plan = append(plan, quickMember{name: name, index: index, kind: kind, required: required})
	}
	return plan, true
}

// methods are how types decode themselves.
var methods = []reflect.Type{
	reflect.TypeFor[json.Unmarshaler](), reflect.TypeFor[json.UnmarshalerFrom](), reflect.TypeFor[encoding.TextUnmarshaler](),
}

func quickKindOf(t reflect.Type) quickKind {
	if t == rawType {
		return quickRaw
	}
	if t == reflect.TypeFor[time.Duration]() {
		return quickNever
	}
	for _, method := range methods {
		if reflect.PointerTo(t).Implements(method) {
			return quickNever
		}
	}
	switch t.Kind() {
	case reflect.String:
		return quickString
	case reflect.Bool:
		return quickBool
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return quickInt
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return quickUint
	case reflect.Struct:
		return quickStruct
	case reflect.Pointer:
		return quickPointer
	case reflect.Slice:
		if t.Elem().Kind() != reflect.Uint8 { // else it is written as base64
			return quickSlice
		}
		return quickNever
	default:
		return quickNever
	}
}

// quick is Fill where that is all there is to it; false leaves it to Fill, whatever is in v by
// then: Fill writes it over.
func quick(data []byte, v any, unknown Unknown) bool {
	q := quickReader{rest: data, unknown: unknown}
	into := reflect.ValueOf(v).Elem()
	return into.Kind() == reflect.Struct && quickKindOf(into.Type()) == quickStruct && q.object(into) && len(q.rest) == 0
}

// quickReader reads what [Valid] has passed.
type quickReader struct {
	rest    []byte
	unknown Unknown
}

// take passes over one byte, if it is next.
func (q *quickReader) take(c byte) bool {
	if len(q.rest) == 0 || q.rest[0] != c {
		return false
	}
	q.rest = q.rest[1:]
	return true
}

func (q *quickReader) object(into reflect.Value) bool {
	plan := quickPlanOf(into.Type())
	if plan == nil || !q.take('{') {
		return false
	}
	var found uint64 // bits, by the place in plan
	next := 0        // where the next member is, in what we write
	for more := !q.take('}'); more; {
		name, plain := q.text()
		if !plain || !q.take(':') {
			return false
		}
		i := 0
		for ; i < len(plan); i++ {
			if at := (next + i) % len(plan); plan[at].name == string(name) {
				next = at
				break
			}
		}
		switch {
		case i < len(plan):
			m := &plan[next]
			if found&(1<<next) != 0 || !q.value(into.FieldByIndex(m.index), m.kind) {
				return false
			}
			found |= 1 << next
			next++
		case q.unknown == RejectUnknown || q.skip() == nil:
			return false
		}
		switch {
		case q.take(','):
		case q.take('}'):
			more = false
		default:
			return false
		}
	}
	for i := range plan {
		if plan[i].required && found&(1<<i) == 0 {
			return false
		}
	}
	return true
}

// value decodes the next value.
func (q *quickReader) value(into reflect.Value, kind quickKind) bool {
	switch kind {
	case quickString:
		return q.string(into)
	case quickBool:
		rest, yes := bytes.CutPrefix(q.rest, []byte("true"))
		rest, no := bytes.CutPrefix(rest, []byte("false"))
		q.rest = rest
		into.SetBool(yes)
		return yes != no
	case quickInt:
		n, ok := q.number()
		if !ok || into.OverflowInt(int64(n)) {
			return false
		}
		into.SetInt(int64(n))
		return true
	case quickUint:
		n, ok := q.number()
		if !ok || into.OverflowUint(n) {
			return false
		}
		into.SetUint(n)
		return true
	case quickRaw:
		raw := q.skip()
		into.SetBytes(bytes.Clone(raw))
		return raw != nil
	case quickStruct:
		return q.object(into)
	case quickPointer:
		if !into.IsNil() || bytes.HasPrefix(q.rest, []byte("null")) {
			return false
		}
		into.Set(reflect.New(into.Type().Elem()))
		return q.value(into.Elem(), quickKindOf(into.Type().Elem()))
	case quickSlice:
		return q.slice(into)
	default:
		return false
	}
}

func (q *quickReader) slice(into reflect.Value) bool {
	if into.Len() > 0 || !q.take('[') {
		return false
	}
	kind := quickKindOf(into.Type().Elem())
	all := reflect.MakeSlice(into.Type(), 0, 0)
	for more := !q.take(']'); more; {
		element := reflect.New(into.Type().Elem()).Elem()
		if !q.value(element, kind) {
			return false
		}
		all = reflect.Append(all, element)
		switch {
		case q.take(','):
		case q.take(']'):
			more = false
		default:
			return false
		}
	}
	into.Set(all)
	return true
}

func (q *quickReader) string(into reflect.Value) bool {
	whole := q.rest
	text, plain := q.text()
	if plain {
		into.SetString(string(text))
		return true
	}
	if text == nil {
		return false
	}
	unquoted, err := jsontext.AppendUnquote(nil, whole[:len(whole)-len(q.rest)])
	into.SetString(string(unquoted))
	return err == nil
}

// text takes a text, without its quotes; nil for another value. It is plain without an escape.
func (q *quickReader) text() (text []byte, plain bool) {
	if len(q.rest) == 0 || q.rest[0] != '"' {
		return nil, false
	}
	end := bytes.IndexByte(q.rest[1:], '"')
	if end < 0 {
		return nil, false
	}
	if text = q.rest[1 : 1+end]; bytes.IndexByte(text, '\\') < 0 {
		q.rest = q.rest[1+end+1:]
		return text, true
	}
	for at := 1; at < len(q.rest); at++ {
		switch q.rest[at] {
		case '\\':
			at++
		case '"':
			text, q.rest = q.rest[1:at], q.rest[at+1:]
			return text, false
		}
	}
	return nil, false
}

// number takes an integer that is not negative and has at most 18 digits.
func (q *quickReader) number() (n uint64, ok bool) {
	digits := 0
	for digits < len(q.rest) && q.rest[digits]-'0' <= 9 {
		n = n*10 + uint64(q.rest[digits]-'0')
		digits++
	}
	if digits == 0 || digits > 18 {
		return 0, false
	}
	q.rest = q.rest[digits:]
	return n, len(q.rest) > 0 && (q.rest[0] == ',' || q.rest[0] == '}' || q.rest[0] == ']')
}

// skip takes any value; nil if there is none.
func (q *quickReader) skip() (raw []byte) {
	whole, depth := q.rest, 0
	for len(q.rest) > 0 {
		switch q.rest[0] {
		case '"':
			if text, _ := q.text(); text == nil {
				return nil
			}
		case '{', '[':
			depth++
			q.rest = q.rest[1:]
			continue
		case '}', ']':
			if depth--; depth < 0 {
				return nil
			}
			q.rest = q.rest[1:]
		case ' ', '\t', '\r', '\n': // what is raw stays as it was written: to read it is for others
			return nil
		case ',', ':':
			if depth == 0 {
				return nil
			}
			q.rest = q.rest[1:]
			continue
		default: // a number, true, false or null
			end := bytes.IndexAny(q.rest, ",:]} \t\r\n")
			if end < 0 {
				end = len(q.rest)
			}
			q.rest = q.rest[end:]
		}
		if depth == 0 {
			return whole[:len(whole)-len(q.rest)]
		}
	}
	return nil
}
