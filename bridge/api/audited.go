package api

import (
	"fmt"
	"reflect"
	"strings"
)

// Audited is a parameter that an audit line has. The tag audit of its field says so: "text"
// for a string that names what the call is about, "rule" for JSON that says what an agent
// or a key may do, or how long, "-" for a parameter that no line has. A text of a conversation, an environment or
// a key is never audited.
type Audited struct {
	Name string
	Rule bool
}

// jsonName is the name of a member.
func jsonName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return name
}

// auditedOf reads the tags of parameters, a struct.
func auditedOf(params reflect.Type) (list []Audited) {
	for f := range params.Fields() {
		name := jsonName(f)
		switch kind := f.Tag.Get("audit"); kind {
		case "text", "rule":
			list = append(list, Audited{Name: name, Rule: kind == "rule"})
		case "-", "":
		default:
			panic(fmt.Sprintf("api: tag audit of %s.%s: %q", params.Name(), f.Name, kind))
		}
	}
	return list
}
