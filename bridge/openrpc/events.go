package openrpc

import (
	"nexus.internal/bridge/api"
	"nexus.internal/protocol/schema"
)

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
