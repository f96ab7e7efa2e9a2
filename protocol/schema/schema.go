package schema

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Schema is a JSON Schema, as far as it is needed: drafts 7 and 2020-12 read it alike,
// but for Defs, which draft 7 does not have. A zero member is not written.
type Schema struct {
	Dialect     string `json:"$schema,omitzero"`
	Title       string `json:"title,omitzero"`
	Description string `json:"description,omitzero"`
	Ref         string `json:"$ref,omitzero"`
	// Type is one type, or a []string of them; nil for any value.
	Type       any       `json:"type,omitzero"`
	Const      any       `json:"const,omitzero"`
	Format     string    `json:"format,omitzero"`
	Enum       []any     `json:"enum,omitzero"`
	Default    any       `json:"default,omitzero"`
	Minimum    *int64    `json:"minimum,omitzero"`
	Above      *int64    `json:"exclusiveMinimum,omitzero"`
	Maximum    *int64    `json:"maximum,omitzero"`
	MinLength  *int      `json:"minLength,omitzero"`
	MaxLength  *int      `json:"maxLength,omitzero"` // characters
	Properties *Members  `json:"properties,omitzero"`
	Required   []string  `json:"required,omitempty"`
	Items      *Schema   `json:"items,omitzero"`
	Additional any       `json:"additionalProperties,omitzero"` // false, or the *Schema of a map's values
	Not        *Schema   `json:"not,omitzero"`
	AnyOf      []*Schema `json:"anyOf,omitempty"`
	Defs       *Members  `json:"$defs,omitzero"`
}

// Members are named schemas: the properties of an object, in the order of the struct,
// or definitions.
type Members struct{ List []Member }

// Member is one of them.
type Member struct {
	Name     string
	Required bool // a property is always there
	Schema   *Schema
}

func (m *Members) MarshalJSONTo(enc *jsontext.Encoder) error {
	if err := enc.WriteToken(jsontext.BeginObject); err != nil {
		return err
	}
	for _, one := range m.List {
		if err := enc.WriteToken(jsontext.String(one.Name)); err != nil {
			return err
		}
		if err := json.MarshalEncode(enc, one.Schema); err != nil {
			return err
		}
	}
	return enc.WriteToken(jsontext.EndObject)
}

// Mode says which values of a type a schema is about.
type Mode int

const (
	// Written are the values that we write: a member may be missing if it is left out
	// where it is zero, and null if it is a pointer that is not left out.
	Written Mode = iota
	// Read are those that package strict takes: a member may be missing if it is a
	// pointer, which may be null as well, or has a default. Unknown ones are ignored, but
	// where a tag says strict:"closed".
	Read
	// ReadClosed is Read, but that unknown members are refused.
	ReadClosed
)

var (
	rawType  = reflect.TypeFor[jsontext.Value]()
	timeType = reflect.TypeFor[time.Time]()
)

// Of is the schema of the values of a type. It panics for a type that strict does
// not take either.
func Of(t reflect.Type, mode Mode) *Schema {
	switch {
	case t == rawType:
		return &Schema{}
	case t == timeType:
		return &Schema{Type: "string", Format: "date-time"}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return Of(t.Elem(), mode).orNull()
	case reflect.String:
		return &Schema{Type: "string"}
	case reflect.Bool:
		return &Schema{Type: "boolean"}
	case reflect.Int, reflect.Int64:
		return &Schema{Type: "integer"}
	case reflect.Uint32:
		return &Schema{Type: "integer", Minimum: new(int64(0)), Maximum: new(int64(1<<32 - 1))}
	case reflect.Uint64:
		return &Schema{Type: "integer", Minimum: new(int64(0))}
	case reflect.Float64:
		return &Schema{Type: "number"}
	case reflect.Slice:
		return &Schema{Type: "array", Items: Of(t.Elem(), mode)}
	case reflect.Map:
		return &Schema{Type: "object", Additional: Of(t.Elem(), mode)}
	case reflect.Struct:
		return object(t, mode)
	case reflect.Interface: // of a closed set: whoever asks knows which
		return &Schema{}
	default:
		panic(fmt.Sprintf("schema: there is none for %v", t))
	}
}

// orNull allows null, too.
func (s *Schema) orNull() *Schema {
	if one, ok := s.Type.(string); ok {
		s.Type = []string{one, "null"}
	}
	if s.Enum != nil {
		s.Enum = append(s.Enum, nil)
	}
	return s
}

func object(t reflect.Type, mode Mode) *Schema {
	s := &Schema{Title: t.Name(), Type: "object", Properties: &Members{Fields(t, mode)}}
	for _, m := range s.Properties.List {
		if m.Required {
			s.Required = append(s.Required, m.Name)
		}
	}
	if mode == ReadClosed {
		s.Additional = false
	}
	return s
}

// Fields are the members of a struct, in its order.
func Fields(t reflect.Type, mode Mode) (list []Member) {
	for _, f := range reflect.VisibleFields(t) {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" || name == "-" || len(f.Index) > 1 && !f.IsExported() {
			continue
		}
		typ, pointer, left := f.Type, f.Type.Kind() == reflect.Pointer, options != ""
		if pointer {
			typ = f.Type.Elem()
		}
		within := mode
		if mode == Read && f.Tag.Get("strict") == "closed" {
			within = ReadClosed
		}
		m := Member{Name: name, Schema: Of(typ, within)}
		m.Schema.annotate(f.Tag)
		if mode == Written {
			m.Required = !left && always(t, f.Index)
			pointer = pointer && !left
		} else {
			m.Required = !pointer && f.Tag.Get("wire") == ""
		}
		if pointer {
			m.Schema.orNull()
		}
		list = append(list, m)
	}
	return list
}

// annotate takes what the tags of a field say besides its type: schema has the types
// of a raw value, enum the values of a text or of the elements of a list, min and max
// bound a number or the length of a text (">" before min: it is not allowed itself), and
// default is what a missing value means.
func (s *Schema) annotate(tag reflect.StructTag) {
	if types, ok := tag.Lookup("schema"); ok {
		if list := strings.Split(types, ","); len(list) > 1 {
			s.Type = list
		} else {
			s.Type = types
		}
	}
	s.bound(tag.Get("min"), tag.Get("max"))
	if text, ok := tag.Lookup("default"); ok {
		s.Default = text
		if s.Type != "string" {
			s.Default = jsontext.Value(text)
		}
	}
	if values, ok := tag.Lookup("enum"); ok {
		of := s
		if s.Items != nil {
			of = s.Items
		}
		of.Enum = nil
		for value := range strings.SplitSeq(values, ",") {
			of.Enum = append(of.Enum, value)
		}
	}
}

func (s *Schema) bound(low, high string) {
	number := func(text string) *int64 {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			panic("schema: " + err.Error())
		}
		return &n
	}
	length := func(text string) *int { return new(int(*number(text))) }
	low, above := strings.CutPrefix(low, ">")
	switch {
	case low == "":
	case above:
		s.Above = number(low)
	case s.Type == "string":
		s.MinLength = length(low)
	default:
		s.Minimum = number(low)
	}
	switch {
	case high == "":
	case s.Type == "string": // of bytes, so that it has no more characters
		s.MaxLength = length(high)
	default:
		s.Maximum = number(high)
	}
}

// always reports whether a field is there whatever the value of t: it is not if
// it comes from an embedded pointer.
func always(t reflect.Type, index []int) bool {
	for i := range index[:len(index)-1] {
		if t.FieldByIndex(index[:i+1]).Type.Kind() == reflect.Pointer {
			return false
		}
	}
	return true
}
