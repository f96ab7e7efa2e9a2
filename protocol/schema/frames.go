package schema

import (
	"fmt"
	"reflect"

	"nexus.internal/protocol"
)

// maxID bounds the id of a command, in bytes (SPEC §3.3).
const maxID = 4096

// laterTitle is the title of what a later version may say.
const laterTitle = "Of a later version"

// Command is the schema of the frames of a command, as a child takes them.
func Command(c protocol.Command) *Schema {
	s := tagged(c.Name(), reflect.TypeOf(c), Read)
	for _, m := range s.Properties.List {
		if m.Name == "id" {
			m.Schema.MaxLength = new(maxID)
			if m.Required {
				m.Schema.MinLength = new(1)
			}
		}
	}
	return s
}

// Event is the schema of the frames of an event, as the child or the server writes them.
func Event(e protocol.Event) *Schema {
	switch e.(type) {
	case protocol.MessageUpdate:
		s := tagged(e.Name(), reflect.TypeOf(e), Written)
		s.Properties.List[1].Schema = steps()
		return s
	case protocol.Response:
		return response()
	default:
		return tagged(e.Name(), reflect.TypeOf(e), Written)
	}
}

// steps is the schema of any step of a turn.
func steps() *Schema {
	s := &Schema{}
	var names []any
	for _, step := range protocol.AssistantEvents() {
		names = append(names, step.Name())
		s.AnyOf = append(s.AnyOf, tagged(step.Name(), reflect.TypeOf(step), Written))
	}
	s.AnyOf = append(s.AnyOf, later(names))
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

// later is an object of a type that is none of those named.
func later(known []any) *Schema {
	s := &Schema{Title: laterTitle, Type: "object", Properties: &Members{}}
	s.add("type", &Schema{Type: "string", Not: &Schema{Enum: known}})
	return s
}

// Child is the schema of the frames of the child protocol (SPEC §3): of any of them, and
// in its definitions of all commands (command), all events (event) and each by its type.
// An event of a type that this version has not is one, too.
func Child() *Schema {
	command, event, defs := &Schema{}, &Schema{}, &Members{}
	var known []any
	define := func(all *Schema, name string, s *Schema) {
		known = append(known, name)
		all.AnyOf = append(all.AnyOf, reference(name))
		defs.List = append(defs.List, Member{Name: name, Schema: s})
	}
	for _, c := range protocol.Commands() {
		define(command, c.Name(), Command(c))
	}
	for _, e := range protocol.Events() {
		define(event, e.Name(), Event(e))
	}
	event.AnyOf = append(event.AnyOf, later(known))
	defs.List = append([]Member{{Name: "command", Schema: command}, {Name: "event", Schema: event}}, defs.List...)
	return &Schema{
		Dialect: "https://json-schema.org/draft/2020-12/schema",
		Title:   fmt.Sprintf("nexus child protocol, version %d", protocol.Version),
		Description: "A frame is one JSON object on one line. Commands go to the child's stdin (#/$defs/command), " +
			"events come from its stdout (#/$defs/event). Members that are not named here are ignored, as are events of other types.",
		AnyOf: []*Schema{reference("command"), reference("event")},
		Defs:  defs,
	}
}

func reference(name string) *Schema { return &Schema{Ref: "#/$defs/" + name} }
