package openrpc_test

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
	"github.com/google/jsonschema-go/jsonschema"

	"nexus.internal/bridge/api"
	"nexus.internal/protocol/schema"
	"nexus.internal/protocol/strict"
)

// resolved is a schema that values can be compared with. closed refuses members that
// it does not name, at any depth.
func resolved(t *testing.T, of any, closed bool) *jsonschema.Resolved {
	t.Helper()
	raw, err := json.Marshal(of)
	if err != nil {
		t.Fatal(err)
	}
	if closed {
		raw = []byte(strings.ReplaceAll(string(raw), `"properties":`, `"additionalProperties":false,"properties":`))
	}
	var s jsonschema.Schema
	if err := json.Unmarshal(raw, &s); err != nil {
		t.Fatal(err)
	}
	r, err := s.Resolve(nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// full sets every field of a value to something, lists and maps to one element.
func full(v reflect.Value) {
	if v.Type() == reflect.TypeFor[jsontext.Value]() {
		v.SetBytes([]byte(`{}`))
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		full(v.Elem())
	case reflect.String:
		v.SetString("x")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(1)
	case reflect.Uint32, reflect.Uint64:
		v.SetUint(1)
	case reflect.Float64:
		v.SetFloat(1)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		full(v.Index(0))
	case reflect.Map:
		element := reflect.New(v.Type().Elem()).Elem()
		full(element)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(reflect.ValueOf("x"), element)
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			v.Set(reflect.ValueOf(time.Unix(1, 0).UTC()))
			return
		}
		for i := range v.NumField() {
			if field := v.Type().Field(i); field.Tag.Get("json") != "-" {
				full(v.Field(i))
				annotated(v.Field(i), field.Tag)
			}
		}
	default:
		panic(fmt.Sprintf("no value for %v", v.Type()))
	}
}

// annotated sets a field to a value that its tags allow.
func annotated(v reflect.Value, tag reflect.StructTag) {
	if strings.HasPrefix(tag.Get("schema"), "string") {
		v.SetBytes([]byte(`"x"`))
	}
	values, ok := tag.Lookup("enum")
	if !ok {
		return
	}
	for v.Kind() != reflect.String {
		if v.Kind() == reflect.Slice {
			v = v.Index(0)
		} else {
			v = v.Elem()
		}
	}
	first, _, _ := strings.Cut(values, ",")
	v.SetString(first)
}

func written(t *testing.T, v any) (raw []byte, value any) {
	t.Helper()
	raw, err := json.Marshal(v)
	if err == nil {
		err = json.Unmarshal(raw, &value)
	}
	if err != nil {
		t.Fatal(err)
	}
	return raw, value
}

// types are all structs that one is made of, itself included.
func types(t reflect.Type, seen map[reflect.Type]bool) {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		if t != reflect.TypeFor[jsontext.Value]() {
			types(t.Elem(), seen)
		}
	case reflect.Struct:
		if seen[t] || t.PkgPath() == "time" {
			return
		}
		seen[t] = true
		for f := range t.Fields() {
			if f.Tag.Get("json") != "-" {
				types(f.Type, seen)
			}
		}
	default: // made of nothing else
	}
}

// A result, a notification and each part of them is written with the members that its
// schema requires even if all of it is zero, and with all that it names if none is.
func TestSchemasOfResultsSayWhatIsWritten(t *testing.T) {
	all := map[reflect.Type]bool{}
	for _, m := range api.Methods {
		types(reflect.TypeOf(m.Result), all)
	}
	for _, m := range api.Methods {
		for _, n := range m.Stream {
			types(reflect.TypeOf(n.Params), all)
		}
	}
	for typ := range all {
		of := schema.Of(typ, schema.Written)
		var names []string
		for _, m := range of.Properties.List {
			names = append(names, m.Name)
		}
		value := reflect.New(typ).Elem()
		_, zero := written(t, value.Interface())
		full(value)
		_, whole := written(t, value.Interface())
		for _, one := range []struct {
			what string
			want []string
			got  any
		}{{"zero", of.Required, zero}, {"full", names, whole}} {
			got := slices.Sorted(maps.Keys(one.got.(map[string]any)))
			if diff := cmp.Diff(slices.Sorted(slices.Values(one.want)), slices.Concat([]string(nil), got)); diff != "" {
				t.Errorf("%v: members where it is %s (-schema +written):\n%s", typ, one.what, diff)
			}
		}
		if err := resolved(t, of, true).Validate(whole); err != nil {
			t.Errorf("%v is not what its schema says: %v", typ, err)
		}
	}
}

// What the schemas of parameters take the server's decoder takes, and the reverse: all
// of them; all but one, at any depth; null in the place of one; and one too many.
func TestSchemasOfParametersSayWhatIsTaken(t *testing.T) {
	tried := 0
	for _, m := range api.Methods {
		typ := reflect.TypeOf(m.Params)
		of := resolved(t, schema.Of(typ, schema.ReadClosed), false)
		value := reflect.New(typ).Elem()
		full(value)
		raw, whole := written(t, value.Interface())
		compare := func(raw []byte, whole any) {
			tried++
			decoded := reflect.New(typ)
			err := strict.Unmarshal(raw, decoded.Interface(), strict.RejectUnknown)
			if err == nil { // what a value may be that any value can be
				switch p := decoded.Elem().Interface().(type) {
				case api.SetSystemPromptParams, api.UpdateContextParams:
					err = api.Check(p)
				}
			}
			if bySchema := of.Validate(whole); (err == nil) != (bySchema == nil) {
				t.Errorf("%s %s: by the decoder %v, by the schema %v", m.Name, raw, err, bySchema)
			}
		}
		compare(raw, whole)
		without(whole, func(object map[string]any, name string) {
			was := object[name]
			for _, change := range []func(){
				func() { delete(object, name) },
				func() { object[name] = nil },
				func() { object[name] = map[string]any{"zzz": true} },
				func() { object[name] = was; object["zzz"] = 1.0 },
			} {
				change()
				again, value := written(t, whole)
				compare(again, value)
			}
			object[name] = was
			delete(object, "zzz")
		})
	}
	if tried < 200 {
		t.Errorf("only %d values were tried", tried)
	}
}

// without visits each member of each object in a value.
func without(value any, visit func(object map[string]any, name string)) {
	switch value := value.(type) {
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(value)) {
			without(value[name], visit)
			visit(value, name)
		}
	case []any:
		for _, element := range value {
			without(element, visit)
		}
	}
}
