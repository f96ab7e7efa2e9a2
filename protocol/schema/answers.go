package schema

import (
	"reflect"

	"nexus.internal/protocol"
)

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

// respond is what every response has.
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
