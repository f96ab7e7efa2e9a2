package api

import (
	"cmp"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"sync"
)

// bound is what the tags of one parameter allow (see Tags in doc.go).
type bound struct {
	index    []int
	name     string // dotted path
	unit     string // after a number of the message, with a space before it; may be ""
	enum     []string
	min, max *float64 // of a number, or of the bytes of a string
	above    bool     // min itself is not allowed
}

var bounds sync.Map // from the reflect.Type of parameters to []bound

// boundsOf reads the tags of the parameters t, and of the objects within them.
func boundsOf(t reflect.Type) []bound {
	if known, ok := bounds.Load(t); ok {
		return known.([]bound)
	}
	var list []bound
	var walk func(t reflect.Type, index []int, prefix string)
	walk = func(t reflect.Type, index []int, prefix string) {
		for i := range t.NumField() {
			f := t.Field(i)
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			b := bound{index: append(index[:len(index):len(index)], i), name: prefix + name}
			typ := f.Type
			if typ.Kind() == reflect.Pointer {
				typ = typ.Elem()
			}
			if typ.Kind() == reflect.Struct {
				walk(typ, b.index, b.name+".")
				continue
			}
			if b.read(f.Tag) && typ.Kind() != reflect.Slice {
				list = append(list, b)
			}
		}
	}
	walk(t, nil, "")
	bounds.Store(t, list)
	return list
}

// read takes what the tags say, and reports whether they bound anything.
func (b *bound) read(tag reflect.StructTag) bool {
	if unit := tag.Get("unit"); unit != "" {
		b.unit = " " + unit
	}
	if values, ok := tag.Lookup("enum"); ok {
		b.enum = strings.Split(values, ",")
	}
	low, above := strings.CutPrefix(tag.Get("min"), ">")
	b.above = above
	for _, one := range []struct {
		text string
		into **float64
	}{{low, &b.min}, {tag.Get("max"), &b.max}} {
		if one.text == "" {
			continue
		}
		n, err := strconv.ParseFloat(one.text, 64)
		if err != nil {
			panic(fmt.Sprintf("api: tag of %s: %v", b.name, err))
		}
		*one.into = &n
	}
	return b.enum != nil || b.min != nil || b.max != nil
}

// checkBounds finds a parameter that the tags of its type do not allow. The error is a
// *ParamError.
func checkBounds(params any) error {
	v := reflect.ValueOf(params)
	for _, b := range boundsOf(v.Type()) {
		value, there := at(v, b.index)
		if !there {
			continue
		}
		if problem := b.problem(value); problem != "" {
			return Invalid(b.name, "%s", problem).Near(value.String(), b.enum)
		}
	}
	return nil
}

// at is the value of a field, or where its pointer, or that of an object around it, is
// nil, nothing.
func at(v reflect.Value, index []int) (value reflect.Value, there bool) {
	for _, i := range index {
		v = v.Field(i)
		if v.Kind() == reflect.Pointer {
			if v.IsNil() {
				return v, false
			}
			v = v.Elem()
		}
	}
	return v, true
}

func (b bound) problem(v reflect.Value) string {
	var n float64
	unit := b.unit
	switch v.Kind() {
	case reflect.String:
		if b.enum != nil {
			for _, one := range b.enum {
				if v.String() == one {
					return ""
				}
			}
			return "want " + oneOf(b.enum)
		}
		n, unit = float64(v.Len()), " bytes"
	case reflect.Float64:
		n = v.Float()
	case reflect.Int:
		n = float64(v.Int())
	case reflect.Uint64:
		n = float64(v.Uint())
	default:
		panic(fmt.Sprintf("api: %s has a bound and is a %s", b.name, v.Kind()))
	}
	if (b.min == nil || cmp.Compare(n, *b.min) > 0 || n == *b.min && !b.above) && (b.max == nil || n <= *b.max) {
		return ""
	}
	number := func(f *float64) string { return strconv.FormatFloat(*f, 'f', -1, 64) }
	have := ", have " + strconv.FormatFloat(n, 'g', -1, 64)
	switch {
	case b.max == nil:
		return "want at least " + number(b.min) + unit + have
	case b.min == nil:
		return "want at most " + number(b.max) + unit + have
	case b.above:
		return "want more than " + number(b.min) + " and at most " + number(b.max) + unit
	case v.Kind() == reflect.String:
		return "want " + number(b.min) + " to " + number(b.max) + unit + have
	default:
		return "want " + number(b.min) + " to " + number(b.max) + unit
	}
}
