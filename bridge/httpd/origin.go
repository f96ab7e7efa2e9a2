package httpd

import (
	"net/http"
	"strings"
)

// checkOrigin refuses web pages, but for our own (SPEC §6.11) and those of the
// allowed origins, which get its headers (CORS). It answers a preflight, and reports whether the request goes on.
func (s *Server) checkOrigin(x *request, to route) bool {
	origins := x.r.Header.Values("Origin")
	if len(origins) == 0 {
		return true
	}
	// The Host was checked: what came from a page at the same one is ours. That
	// somebody else had a browser send it is no danger, as no browser adds the key.
	scheme := "http://"
	if x.certificate() != nil {
		scheme = "https://"
	}
	if len(origins) == 1 && origins[0] == scheme+strings.ToLower(x.r.Host) {
		return true
	}
	if len(origins) > 1 || !s.access.Load().origins[origins[0]] {
		s.refuse(x, badOrigin)
		return false
	}
	h := x.w.Header()
	h.Set("Access-Control-Allow-Origin", origins[0])
	h.Add("Vary", "Origin")
	h.Set("Access-Control-Expose-Headers", "X-Request-Id, Retry-After")
	allowed := to.allows()
	if x.r.Method != http.MethodOptions || x.r.Header.Get("Access-Control-Request-Method") == "" || allowed == nil {
		return true
	}
	h.Set("Access-Control-Allow-Methods", strings.Join(allowed, ", "))
	h.Set("Access-Control-Allow-Headers", "Authorization, Content-Type, Content-Encoding, Last-Event-ID, X-Request-Id, X-Nexus-Restore, Traceparent")
	h.Set("Access-Control-Max-Age", "600")
	x.w.WriteHeader(http.StatusNoContent)
	return false
}
