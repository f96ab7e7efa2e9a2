package schema

import (
	"fmt"
	"reflect"

	"nexus.internal/protocol"
)

// laterTitle is the title of what a later version may say.
const laterTitle = "Of a later version"

// Command is the schema of the frames of a command, as a child takes them.
func Command(c protocol.Command) *Schema {
	s := tagged(c.Name(), reflect.TypeOf(c), Read)
	for _, m := range s.Properties.List {
		if m.Name == "id" {
			m.Schema.MaxLength = new(protocol.MaxID)
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

func tagged(name string, t reflect.Type, mode Mode) *Schema {
	s := Of(t, mode)
	tag := Member{Name: "type", Required: true, Schema: &Schema{Const: name}}
	s.Properties.List = append([]Member{tag}, s.Properties.List...)
	s.Required = append([]string{"type"}, s.Required...)
	return s
}

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

// answer is the type of the answer to a command (see protocol.Answered); nil for a
// command without a response.
func answer(c protocol.Command) reflect.Type {
	read, ok := reflect.TypeOf(c).MethodByName("Answer")
	if !ok {
		return nil
	}
	return read.Type.Out(0)
}

// response is the schema of all responses: a no to any command, the yes to each, and
// one to a command of a later version.
func response() *Schema {
	no := respond("No", &Schema{Type: "string"}, false)
	no.fill(reflect.TypeFor[protocol.Refusal]())
	s := &Schema{AnyOf: []*Schema{no}}
	var known []any
	for _, c := range protocol.Commands() {
		known = append(known, c.Name())
		members := answer(c)
		if members == nil {
			continue
		}
		yes := respond("Yes to "+c.Name(), &Schema{Const: c.Name()}, true)
		yes.fill(members)
		s.AnyOf = append(s.AnyOf, yes)
	}
	s.AnyOf = append(s.AnyOf, respond(laterTitle, &Schema{Type: "string", Not: &Schema{Enum: known}}, true))
	return s
}

func respond(title string, command *Schema, ok bool) *Schema {
	s := &Schema{Title: title, Type: "object", Properties: &Members{}}
	s.add("type", &Schema{Const: "response"})
	s.add("id", &Schema{Type: "string"})
	s.add("command", command)
	s.add("ok", &Schema{Const: ok})
	return s
}

// fill adds the members of a struct to an object.
func (s *Schema) fill(t reflect.Type) {
	for _, m := range Fields(t, Written) {
		if t == reflect.TypeFor[protocol.MessagesPage]() && m.Name == "messages" { // a raw value
			m.Schema = Of(reflect.TypeFor[[]protocol.PageMessage](), Written)
		}
		s.Properties.List = append(s.Properties.List, m)
		if m.Required {
			s.Required = append(s.Required, m.Name)
		}
	}
}

// add puts one more member into an object, which is always there.
func (s *Schema) add(name string, of *Schema) {
	s.Properties.List = append(s.Properties.List, Member{Name: name, Required: true, Schema: of})
	s.Required = append(s.Required, name)
}
