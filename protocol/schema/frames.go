package schema

import (
	"reflect"

	"nexus.internal/protocol"
)

// Command is the schema of the frames of a command, as a child takes them.
func Command(c protocol.Command) *Schema { return tagged(c.Name(), reflect.TypeOf(c), Read) }

// Event is the schema of the frames of an event, as the child or the server writes them.
func Event(e protocol.Event) *Schema {
	s := tagged(e.Name(), reflect.TypeOf(e), Written)
	if _, ok := e.(protocol.MessageUpdate); ok {
		s.Properties.List[1].Schema = steps()
	}
	return s
}

// steps is the schema of any step of a turn, also of those of a later version.
func steps() *Schema {
	s := &Schema{}
	var names []any
	for _, step := range protocol.AssistantEvents() {
		names = append(names, step.Name())
		s.AnyOf = append(s.AnyOf, tagged(step.Name(), reflect.TypeOf(step), Written))
	}
	s.AnyOf = append(s.AnyOf, later("LaterAssistantEvent", names))
	return s
}

// tagged is an object with its name as the member type.
func tagged(name string, t reflect.Type, mode Mode) *Schema {
	s := Of(t, mode)
	tag := Member{Name: "type", Required: true, Schema: &Schema{Const: name}}
	s.Properties.List = append([]Member{tag}, s.Properties.List...)
	s.Required = append([]string{"type"}, s.Required...)
	return s
}

// later is an object of a type that is none of those named: of a later version.
func later(title string, known []any) *Schema {
	typ := &Schema{Type: "string", Not: &Schema{Enum: known}}
	return &Schema{
		Title: title, Type: "object", Required: []string{"type"},
		Properties: &Members{[]Member{{Name: "type", Required: true, Schema: typ}}},
	}
}
