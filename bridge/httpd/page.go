package httpd

import (
	"net/http"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"nexus.internal/bridge/auth"
	"nexus.internal/bridge/page"
)

// docs answers with the page about the methods. It has nothing of what the
// server does or knows, so it needs no key.
func (s *Server) docs(x *request, query string) {
	_ = x.rc.SetReadDeadline(time.Time{})
	if _, refused := readQuery(query); refused != nil {
		s.refuse(x, refused)
		return
	}
	page.Head(x.w.Header())
	x.w.Header().Set("Content-Security-Policy",
		"default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'")
	s.write(x, http.StatusOK, "text/html; charset=utf-8", s.docsPage())
}

func (s *Server) serveFile(x *request, file page.File) {
	_ = x.rc.SetReadDeadline(time.Time{})
	page.Head(x.w.Header())
	s.write(x, http.StatusOK, file.Type, file.Body)
}

// pageKey answers POST /page/key: the full key for a code (SPEC §6.11). A code that was made
// by the key before it opens nothing: who has only that one does not get the new one.
func (s *Server) pageKey(x *request) {
	scheme, code, _ := strings.Cut(strings.TrimSpace(x.r.Header.Get("Authorization")), " ")
	var key auth.Key
	if strings.EqualFold(scheme, "Code") {
		key = s.o.Keys.FullKey(s.o.Codes.Use(code))
	}
	if key.IsZero() {
		s.refuse(x, wrongCode)
		return
	}
	body, err := json.Marshal(struct {
		Key string `json:"key"`
	}{key.Reveal()})
	if err != nil {
		s.fail(x, err)
		return
	}
	s.answer(x, http.StatusOK, body)
}
