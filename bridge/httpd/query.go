package httpd

import (
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/rpc"
	"nexus.internal/protocol/jsonrpc"
)

// readQuery reads a query that may have the members named, each of them once.
func readQuery(query string, members ...string) (values url.Values, refused *rpc.Error) {
	values, err := url.ParseQuery(query)
	if err != nil {
		return nil, badQuery("Invalid query: want NAME=VALUE&…", "Escape what is not a letter or digit.")
	}
	way := "Leave out the query."
	if len(members) > 0 {
		way = "Known are: " + strings.Join(members, ", ") + "."
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		switch {
		case !slices.Contains(members, name):
			return nil, badQuery("Unknown parameter: "+clipName(name), way)
		case len(values[name]) > 1:
			return nil, badQuery("Invalid parameter "+name+": stands twice", "Name it once.")
		}
	}
	return values, nil
}

// badQuery refuses the query of a GET.
func badQuery(message, way string) *rpc.Error {
	return apiError(http.StatusBadRequest, jsonrpc.CodeInvalidParams, message, api.KindInvalidParams, message, way)
}
