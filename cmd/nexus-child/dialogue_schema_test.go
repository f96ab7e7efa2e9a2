package main

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/jsonschema-go/jsonschema"
	"github.com/tidwall/gjson"

	"nexus.internal/protocol"
	"nexus.internal/protocol/schema"
)

// published are the schemas that nexus-child schema prints, by type: of commands, and of
// events without what a later version may say and without members that they do not name.
type published struct {
	commands, events map[string]*jsonschema.Resolved
}

var schemas = sync.OnceValue(func() published {
	p := published{map[string]*jsonschema.Resolved{}, map[string]*jsonschema.Resolved{}}
	for _, c := range protocol.Commands() {
		p.commands[c.Name()] = resolved(schema.Command(c))
	}
	for _, e := range protocol.Events() {
		s := schema.Event(e)
		shut(s)
		p.events[e.Name()] = resolved(s)
	}
	return p
})

func resolved(s *schema.Schema) *jsonschema.Resolved {
	raw, err := json.Marshal(s)
	var of jsonschema.Schema
	if err == nil {
		err = json.Unmarshal(raw, &of)
	}
	r, broken := of.Resolve(nil)
	if err := errors.Join(err, broken); err != nil {
		panic(err)
	}
	return r
}

// shut makes a schema refuse what it does not name.
func shut(s *schema.Schema) {
	known := s.AnyOf[:0]
	for _, one := range s.AnyOf {
		if !strings.Contains(one.Title, "later version") {
			shut(one)
			known = append(known, one)
		}
	}
	s.AnyOf = known
	if s.Properties != nil {
		s.Additional = false
		for _, m := range s.Properties.List {
			shut(m.Schema)
		}
	}
	if s.Items != nil {
		shut(s.Items)
	}
	if values, ok := s.Additional.(*schema.Schema); ok {
		shut(values)
	}
}

func (d *dialogue) validate(all map[string]*jsonschema.Resolved, line string) error {
	d.Helper()
	of := all[gjson.Get(line, "type").Str]
	if of == nil {
		return errors.New("its type has no schema")
	}
	var v any
	if err := json.Unmarshal([]byte(line), &v); err != nil {
		return err
	}
	return of.Validate(v)
}

// wroteAsPublished checks a frame of the child against the schema of its type.
func (d *dialogue) wroteAsPublished(line string) {
	d.Helper()
	if err := d.validate(schemas().events, line); err != nil {
		d.failf("%.3000s\nis not what nexus-child schema says: %v", line, err)
	}
	if event, err := (protocol.Frame{Raw: []byte(line)}).Decode(); err == nil {
		if r, ok := event.(protocol.Response); ok {
			d.answeredAsTyped(line, r)
		}
	}
}

// answeredAsTyped checks that a response is all in its Go type: read and written again,
// it is the same line.
func (d *dialogue) answeredAsTyped(line string, r protocol.Response) {
	d.Helper()
	i := slices.IndexFunc(protocol.Commands(), func(c protocol.Command) bool { return c.Name() == r.Command })
	members, ok := any(r.Refusal()), `{"ok":false`
	if r.Refusal() == nil {
		read := reflect.ValueOf(protocol.Commands()[i]).MethodByName("Answer").Call([]reflect.Value{reflect.ValueOf(r)})
		if !read[1].IsNil() {
			d.failf("%.3000s\n%v", line, read[1])
		}
		members, ok = read[0].Interface(), `{"ok":true`
	}
	body, err := json.Marshal(members)
	if err != nil {
		d.failf("%.3000s\n%v", line, err)
	}
	if len(body) > len("{}") {
		ok += ","
	}
	got, err := protocol.AppendEvent(nil, protocol.Response{ID: r.ID, Command: r.Command, Body: jsontext.Value(ok + string(body[1:]))})
	want, invalid := jsontext.AppendFormat(nil, []byte(line)) // which may have more escapes
	if err := errors.Join(err, invalid); err != nil || string(got) != string(want) {
		d.failf("%.3000s\nis read as %T and written again as\n%.3000s\n%v", line, members, got, err)
	}
}

// takenAsPublished checks that the schema of its type takes a command that a child can
// read, and no other.
func (d *dialogue) takenAsPublished(line string) {
	d.Helper()
	command, err := protocol.DecodeCommand([]byte(line))
	if _, malformed := errors.AsType[*protocol.SyntaxError](err); malformed {
		return
	}
	bySchema := d.validate(schemas().commands, line)
	if (err == nil) == (bySchema == nil) || elsewhere(command) || strings.Contains(line, "18446744073709551616") { // which is 2^64
		return
	}
	d.failf("%.3000s\na child says %v, nexus-child schema %v", line, err, bySchema)
}

// elsewhere reports whether a command has what a child refuses after it was read.
func elsewhere(c protocol.Command) bool {
	if c == nil {
		return false
	}
	update, ok := c.(protocol.UpdateContext)
	return c.Ident() == "" || len(c.Ident()) > 4096 || ok && update.Data.Kind() != '{'
}
