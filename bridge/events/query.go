package events

import (
	"net/http"
	"net/url"
	"strings"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/rpc"
	"nexus.internal/protocol/jsonrpc"
)

// query is what a client asks of a stream of events.
type query struct {
	// position is after which events; "" if nothing was said. source names where
	// that stands.
	position, source string
	types            map[string]bool // nil: all
	agents           map[string]bool // nil: all
	toolOutput       bool            // what tools put out while they run, too
}

// fresh reports whether the client goes on from nowhere.
func (q query) fresh() bool { return q.position == "" || q.position == "0" }

// maxNames bounds the types and the agents that a query names.
const maxNames = 256

// readQuery reads what a request asks for.
func readQuery(r Request) (q query, refused *rpc.Error) {
	q.position, q.source = r.LastEventID, "header Last-Event-ID"
	if q.position == "" {
		q.position, q.source = r.Query.Get("after"), "parameter after"
	}
	const names = "names set apart by commas, at most 256"
	var ok bool
	if q.types, ok = nameSet(r.Query, "types", func(name string) bool { return name != "" }); !ok {
		return q, new(badParameter("parameter types", names, "Name types of events, as in types=turn_end,error."))
	}
	if q.agents, ok = nameSet(r.Query, "agents", api.ValidAgentID); !ok {
		return q, new(badParameter("parameter agents", names, "Name agents, as in agents=worker-1,worker-2."))
	}
	switch said := r.Query.Get("tool_output"); {
	case said == "true":
		q.toolOutput = true
	case said != "false" && r.Query.Has("tool_output"):
		return q, new(badParameter("parameter tool_output", "true or false", "Send tool_output=true for what tools put out while they run."))
	}
	return q, nil
}

// nameSet reads a list of names; nil if there is none.
func nameSet(values url.Values, key string, valid func(string) bool) (set map[string]bool, ok bool) {
	if !values.Has(key) {
		return nil, true
	}
	set = map[string]bool{}
	for name := range strings.SplitSeq(values.Get(key), ",") {
		if set[name] = true; !valid(name) || len(set) > maxNames {
			return nil, false
		}
	}
	return set, true
}

// wants reports whether an event passes the filter of types; a gap always does.
func (q query) wants(name string) bool {
	return q.types == nil || q.types[name] || name == "gap"
}

// badParameter refuses what a client says of a stream of events; source is where it said so.
func badParameter(source, want, way string) rpc.Error {
	return rpc.Refuse(http.StatusBadRequest, jsonrpc.CodeInvalidParams, "Invalid "+source+": want "+want, api.KindInvalidParams, "", way)
}
