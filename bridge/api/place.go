package api

import "reflect"

type (
	// Placement says which machine of a cluster is to have a new agent. What is given must all hold; of the machines that fit, the one with the fewest
	// agents for each processor is taken.
	Placement struct {
		// The machine, by its name.
		Node *string `json:"node,omitzero"`
		// Labels that the machine has.
		Labels *map[string]string `json:"labels,omitzero"`
		// An agent, or a saved session, whose machine it is.
		Near *string `json:"near,omitzero"`
	}
)

// Named are the agents and sessions that parameters of the method name by its row's Of, in that order.
func (m Method) Named(params any) (names []string) {
	v := reflect.ValueOf(params)
	for _, name := range m.Of {
		for _, b := range fieldsOf(v.Type()) {
			if b.name != name {
				continue
			}
			if f, there := at(v, b.index); there && f.String() != "" {
				names = append(names, f.String())
			}
		}
	}
	return names
}

// fieldsOf are the members of parameters, without those of the objects within them.
func fieldsOf(t reflect.Type) (list []bound) {
	for f := range t.Fields() {
		list = append(list, bound{index: f.Index, name: jsonName(f)})
	}
	return list
}

// StaleHeader is the header of an answer by a machine of a cluster that does not reach a majority of the others: since when what it has may be old, in
// RFC 3339.
const StaleHeader = "X-Nexus-Stale"
