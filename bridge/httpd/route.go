package httpd

import (
	"net/http"
	"strings"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/page"
)

// route is what a path leads to.
type route struct {
	kind  routeKind
	agent string     // for toAgent and toEvents; valid as an id
	file  *page.File // what the path gives to anybody by GET; nil for nothing
}

type routeKind int

const (
	toNothing routeKind = iota
	toGlobal
	toAgent
	toEvents
	toHealth
	toReady
	toDocs
	toAllEvents
	toMetrics
	toFile
	toPageKey
)

// parseRoute finds the route of a raw path, asked for by a method: nothing is decoded, cleaned or
// redirected, so that what was checked is what is used.
func parseRoute(method, path string) route {
	if file, ok := page.Find(path); ok {
		kind := toFile
		if path == "/" && method != http.MethodGet && method != http.MethodHead {
			kind = toGlobal
		}
		return route{kind: kind, file: &file}
	}
	switch path {
	case "/rpc":
		return route{kind: toGlobal}
	case "/healthz":
		return route{kind: toHealth}
	case "/readyz":
		return route{kind: toReady}
	case "/events":
		return route{kind: toAllEvents}
	case "/docs":
		return route{kind: toDocs}
	case "/metrics":
		return route{kind: toMetrics}
	case "/page/key":
		return route{kind: toPageKey}
	}
	id, ok := strings.CutPrefix(path, "/agent/")
	if !ok {
		return route{}
	}
	kind := toAgent
	if name, events := strings.CutSuffix(id, "/events"); events {
		id, kind = name, toEvents
	}
	if !api.ValidAgentID(id) {
		return route{}
	}
	return route{kind: kind, agent: id}
}

func (r route) calls() bool { return r.kind == toGlobal || r.kind == toAgent }

// allows are the HTTP methods that the path takes; nil for all.
func (r route) allows() []string {
	switch r.kind {
	case toGlobal, toAgent:
		if r.file != nil {
			return []string{http.MethodPost, http.MethodGet, http.MethodHead}
		}
		return []string{http.MethodPost}
	case toPageKey:
		return []string{http.MethodPost}
	case toEvents, toAllEvents, toMetrics:
		return []string{http.MethodGet}
	case toHealth, toReady, toDocs, toFile:
		return []string{http.MethodGet, http.MethodHead}
	default:
		return nil
	}
}

// String is the name of a route in the log and in the metrics.
func (k routeKind) String() string {
	switch k {
	case toGlobal:
		return "rpc"
	case toAgent:
		return "agent"
	case toEvents:
		return "events"
	case toAllEvents:
		return "all_events"
	case toHealth:
		return "healthz"
	case toReady:
		return "readyz"
	case toMetrics:
		return "metrics"
	case toDocs:
		return "docs"
	case toFile:
		return "page"
	case toPageKey:
		return "page_key"
	default:
		return "none"
	}
}
