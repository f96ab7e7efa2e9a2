package bridge

import (
	"net/http"
	"time"

	"nexus.internal/bridge/openrpc"
	"nexus.internal/bridge/page"
)

// docs answers with the page about the methods. It has nothing of what the
// server does or knows, so it needs no key.
func (s *Server) docs(x *exchange, query string) {
	_ = x.rc.SetReadDeadline(time.Time{})
	if _, wrong := readQuery(query); wrong != nil {
		s.refuse(x, *wrong)
		return
	}
	page.Head(x.w.Header())
	x.w.Header().Set("Content-Security-Policy",
		"default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'")
	s.write(x, http.StatusOK, "text/html; charset=utf-8", openrpc.Page(s.o.Version, "http://"+s.o.Addr))
}
