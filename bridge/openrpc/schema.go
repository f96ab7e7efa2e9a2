package openrpc

import (
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// schema is a JSON Schema, draft 7, as far as it is needed.
type schema struct {
	// Type is one type, or a list of them; nil for any value.
	Type       any      `json:"type,omitzero"`
	Format     string   `json:"format,omitzero"`
	Enum       []any    `json:"enum,omitzero"`
	Minimum    *int     `json:"minimum,omitzero"`
	Properties *members `json:"properties,omitzero"`
	Required   []string `json:"required,omitempty"`
	Items      *schema  `json:"items,omitzero"`
	Additional any      `json:"additionalProperties,omitzero"` // false, or the *schema of a map's values
}

// members are the properties of an object, in the order of the struct.
type members struct{ list []*member }

// member is one field of a struct.
type member struct {
	name     string
	required bool
	schema   *schema
}

// MarshalJSONTo implements json.MarshalerTo.
func (m *members) MarshalJSONTo(enc *jsontext.Encoder) error {
	if err := enc.WriteToken(jsontext.BeginObject); err != nil {
		return err
	}
	for _, one := range m.list {
		if err := enc.WriteToken(jsontext.String(one.name)); err != nil {
			return err
		}
		if err := json.MarshalEncode(enc, one.schema); err != nil {
			return err
		}
	}
	return enc.WriteToken(jsontext.EndObject)
}

var (
	rawType  = reflect.TypeFor[jsontext.Value]()
	timeType = reflect.TypeFor[time.Time]()
)

// of is the schema of a type as package strict decodes it, and as it is written.
// closed objects have no other members. It panics for a type that strict does
// not take either.
func of(t reflect.Type, closed bool) *schema {
	switch {
	case t == rawType:
		return &schema{}
	case t == timeType:
		return &schema{Type: "string", Format: "date-time"}
	}
	switch t.Kind() {
	case reflect.Pointer:
		s := of(t.Elem(), closed)
		if s.Type != nil {
			s.Type = []string{s.Type.(string), "null"}
		}
		return s
	case reflect.String:
		return &schema{Type: "string"}
	case reflect.Bool:
		return &schema{Type: "boolean"}
	case reflect.Int, reflect.Int64:
		return &schema{Type: "integer"}
	case reflect.Uint64:
		return &schema{Type: "integer", Minimum: new(0)}
	case reflect.Float64:
		return &schema{Type: "number"}
	case reflect.Slice:
		return &schema{Type: "array", Items: of(t.Elem(), closed)}
	case reflect.Map:
		return &schema{Type: "object", Additional: of(t.Elem(), closed)}
	case reflect.Struct:
		return object(t, closed)
	default:
		panic(fmt.Sprintf("openrpc: there is no schema for %v", t))
	}
}

func object(t reflect.Type, closed bool) *schema {
	s := &schema{Type: "object", Properties: &members{fields(t, closed)}}
	for _, m := range s.Properties.list {
		if m.required {
			s.Required = append(s.Required, m.name)
		}
	}
	if closed {
		s.Additional = false
	}
	return s
}

// fields are the members of a struct, in its order. One may be missing if it is
// left out where it is zero, or if package strict has a default for it.
func fields(t reflect.Type, closed bool) (list []*member) {
	for _, f := range reflect.VisibleFields(t) {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" || name == "-" || len(f.Index) > 1 && !f.IsExported() {
			continue
		}
		m := &member{
			name: name, schema: of(f.Type, closed),
			required: options == "" && f.Tag.Get("wire") == "" && always(t, f.Index),
		}
		if types, ok := f.Tag.Lookup("schema"); ok { // a raw value that is not any value
			m.schema.Type = strings.Split(types, ",")
		}
		if values, ok := f.Tag.Lookup("enum"); ok {
			for value := range strings.SplitSeq(values, ",") {
				m.schema.Enum = append(m.schema.Enum, value)
			}
			if f.Type.Kind() == reflect.Pointer {
				m.schema.Enum = append(m.schema.Enum, nil)
			}
		}
		list = append(list, m)
	}
	return list
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
