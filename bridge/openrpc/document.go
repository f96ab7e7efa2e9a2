package openrpc

import (
	"fmt"
	"reflect"
	"slices"

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
		// Scope and Effect are those of the table: global, agent or both; reads or
		// changes.
		Scope  string `json:"x-scope"`
		Effect string `json:"x-effect"`
		// Stream is what a stream says before the response: the methods of its
		// notifications, with the schemas of their parameters. Empty if there is none.
		Stream []content `json:"x-stream,omitempty"`
	}
	content struct {
		Name     string         `json:"name"`
		Required bool           `json:"required,omitzero"`
		Schema   *schema.Schema `json:"schema"`
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

// failures are the errors of SPEC §6.2 that a method can have, by code.
var failures = []struct {
	name string
	failure
}{
	{"InvalidParams", failure{jsonrpc.CodeInvalidParams, "Invalid params"}},
	{"InternalError", failure{jsonrpc.CodeInternalError, "Internal error"}},
	{"ServerError", failure{jsonrpc.CodeServerError, "Execution failed"}},
	{"Unavailable", failure{jsonrpc.CodeUnavailable, "Resource unavailable"}},
	{"RateLimited", failure{jsonrpc.CodeRateLimited, "Too many requests"}},
	{"NotPermitted", failure{jsonrpc.CodeNotAuthenticated, "Not permitted"}},
}

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
	var errors []ref
	for _, f := range failures {
		d.Components.Errors[f.name] = f.failure
		errors = append(errors, ref{"#/components/errors/" + f.name})
	}
	for _, m := range api.Methods {
		one := method{
			Name: m.Name, Summary: m.Summary, ParamStructure: "by-name", Params: []content{}, Errors: errors,
			Result: content{Name: "result", Required: true, Schema: schema.Of(reflect.TypeOf(m.Result), schema.Written)},
			Scope:  m.Scope.String(), Effect: m.Effect.String(),
		}
		for _, p := range schema.Fields(reflect.TypeOf(m.Params), schema.ReadClosed) {
			one.Params = append(one.Params, content{Name: p.Name, Required: p.Required, Schema: p.Schema})
		}
		if s, ok := m.Stream(); ok {
			for _, n := range s.Notifications {
				one.Stream = append(one.Stream, content{Name: n.Name, Schema: schema.Of(reflect.TypeOf(n.Params), schema.Written)})
			}
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
