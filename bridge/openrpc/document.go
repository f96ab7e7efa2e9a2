package openrpc

import (
	_ "embed"
	"fmt"
	"reflect"
	"slices"
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"nexus.internal/bridge/api"
	"nexus.internal/protocol/jsonrpc"
	"nexus.internal/protocol/schema"
)

// Version is that of the OpenRPC specification.
const Version = "1.3.2"

type (
	document struct {
		OpenRPC    string     `json:"openrpc"`
		Info       info       `json:"info"`
		Servers    []server   `json:"servers"`
		Methods    []method   `json:"methods"`
		Components components `json:"components"`
	}
	info struct {
		Title       string `json:"title"`
		Version     string `json:"version"`
		Description string `json:"description"`
	}
	server struct {
		Name      string              `json:"name"`
		URL       string              `json:"url"`
		Variables map[string]variable `json:"variables,omitempty"`
	}
	variable struct {
		Default     string `json:"default"`
		Description string `json:"description"`
	}
	method struct {
		Name           string    `json:"name"`
		Summary        string    `json:"summary"`
		ParamStructure string    `json:"paramStructure"` // always by-name
		Params         []content `json:"params"`
		Result         content   `json:"result"`
		Errors         []ref     `json:"errors"`
		Servers        []server  `json:"servers"` // where it is called
		// Scope, Effect and Agents are those of the table: global, agent or both; reads or
		// changes; of which agents an agent may ask for it.
		Scope  string `json:"x-scope"`
		Effect string `json:"x-effect"`
		Agents string `json:"x-agents"`
		// Stream is what a stream says before the response: the methods of its
		// notifications, with the schemas of their parameters. Empty if there is none.
		Stream []content `json:"x-stream,omitempty"`
	}
	content struct {
		Name        string         `json:"name"`
		Description string         `json:"description,omitzero"`
		Required    bool           `json:"required,omitzero"`
		Schema      *schema.Schema `json:"schema"`
	}
	ref struct {
		Ref string `json:"$ref"`
	}
	components struct {
		Errors map[string]failure `json:"errors"`
		// Schemas are those of events.
		Schemas *schema.Members `json:"schemas"`
	}
	failure struct {
		Code    jsonrpc.Code `json:"code"`
		Message string       `json:"message"`
	}
)

// Document is the OpenRPC document of a server of that version at base, a URL
// without a slash at its end. It is one line of JSON.
func Document(version, base string) (jsontext.Value, error) {
	raw, err := json.Marshal(describe(version, base), json.Deterministic(true))
	if err != nil {
		return nil, fmt.Errorf("make the OpenRPC document: %w", err)
	}
	return raw, nil
}

func describe(version, base string) document {
	global := server{Name: "global", URL: base + "/rpc"}
	agent := server{
		Name: "agent", URL: base + "/agent/${agent_id}",
		Variables: map[string]variable{"agent_id": {Default: "worker-1", Description: "the agent"}},
	}
	d := document{
		OpenRPC: Version,
		Info: info{
			Title: "nexus", Version: version,
			Description: "JSON-RPC 2.0 over HTTP POST with Authorization: Bearer KEY. Parameters are given by name.",
		},
		Servers:    []server{global},
		Components: components{Errors: map[string]failure{}, Schemas: eventSchemas()},
	}
	for kind, e := range api.Errors {
		d.Components.Errors[string(kind)] = failure{e.Code, e.Message}
	}
	for _, m := range api.Methods {
		one := method{
			Name: m.Name, Summary: m.Summary, ParamStructure: "by-name", Params: []content{}, Errors: []ref{},
			Result: content{Name: "result", Required: true, Schema: schema.Of(reflect.TypeOf(m.Result), schema.Written)},
			Scope:  m.Scope.String(), Effect: m.Effect.String(), Agents: m.Agents.String(),
		}
		for _, kind := range slices.Concat(api.CommonErrors, m.Errors) {
			one.Errors = append(one.Errors, ref{"#/components/errors/" + string(kind)})
		}
		for _, p := range schema.Fields(reflect.TypeOf(m.Params), schema.ReadClosed) {
			describeMembers(p.Schema)
			one.Params = append(one.Params, content{
				Name: p.Name, Description: described(reflect.TypeOf(m.Params).Name(), p.Name), Required: p.Required, Schema: p.Schema,
			})
		}
		for _, n := range m.Stream {
			one.Stream = append(one.Stream, content{Name: n.Name, Schema: schema.Of(reflect.TypeOf(n.Params), schema.Written)})
		}
		slices.SortStableFunc(one.Params, func(a, b content) int { // as the specification wants it
			if a.Required == b.Required {
				return 0
			}
			if a.Required {
				return -1
			}
			return 1
		})
		if m.Scope != api.Agent {
			one.Servers = append(one.Servers, global)
		}
		if m.Scope != api.Global {
			one.Servers = append(one.Servers, agent)
		}
		d.Methods = append(d.Methods, one)
	}
	return d
}

// descriptions are what the Go comments of the parameters say, by type and member, as in
// SendParams.content. UPDATE=1 go test ./bridge/openrpc writes them.
//
//go:embed descriptions.json
var descriptions []byte

var readDescriptions = sync.OnceValue(func() (said map[string]string) {
	if err := json.Unmarshal(descriptions, &said); err != nil {
		panic("openrpc: descriptions.json: " + err.Error())
	}
	return said
})

// described is what a member of a type is; "" if nothing is known.
func described(typ, member string) string { return readDescriptions()[typ+"."+member] }

// describeMembers describes the members of objects within s.
func describeMembers(s *schema.Schema) {
	if s.Items != nil {
		describeMembers(s.Items)
	}
	if values, ok := s.Additional.(*schema.Schema); ok {
		describeMembers(values)
	}
	if s.Properties == nil {
		return
	}
	for _, m := range s.Properties.List {
		m.Schema.Description = described(s.Title, m.Name)
		describeMembers(m.Schema)
	}
}

// The names under which the document describes what event streams tell, beside the
// schemas of the frames, which are named for their types.
const (
	agentEvent = "AgentEvent" // the data of an event of GET /agent/{id}/events
	anyEvent   = "AnyEvent"   // the data of an event of GET /events
)

// eventSchemas are the schemas of the events of SPEC §6.4.
func eventSchemas() *schema.Members {
	all := &schema.Members{}
	of := map[string]*schema.Schema{agentEvent: {}, anyEvent: {}}
	for _, row := range api.EventTypes() {
		frame := &schema.Schema{Ref: "#/components/schemas/" + row.Event.Name()}
		all.List = append(all.List, schema.Member{Name: row.Event.Name(), Schema: schema.Event(row.Event)})
		for name, place := range map[string]api.Place{agentEvent: row.Agent, anyEvent: row.All} {
			if place != api.Nowhere {
				of[name].AnyOf = append(of[name].AnyOf, placed(frame, place))
			}
		}
	}
	for _, name := range []string{agentEvent, anyEvent} {
		all.List = append(all.List, schema.Member{Name: name, Schema: of[name]})
	}
	return all
}

// placed is the data of an event whose frame is there.
func placed(frame *schema.Schema, place api.Place) *schema.Schema {
	if place == api.Bare {
		return frame
	}
	s := &schema.Schema{Type: "object", Properties: &schema.Members{}}
	add := func(name string, member *schema.Schema) {
		s.Properties.List = append(s.Properties.List, schema.Member{Name: name, Required: true, Schema: member})
		s.Required = append(s.Required, name)
	}
	add("agent_id", &schema.Schema{Type: "string"})
	if place == api.Owned {
		add("seq", &schema.Schema{Type: "integer", Minimum: new(int64(1))})
	}
	add("event", frame)
	return s
}
