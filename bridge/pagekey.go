package bridge

import (
	"net/http"
	"strings"

	"github.com/go-json-experiment/json"
)

// pageKey answers POST /page/key: the full key for a code (SPEC §6.11).
func (s *Server) pageKey(x *exchange) {
	scheme, code, _ := strings.Cut(strings.TrimSpace(x.r.Header.Get("Authorization")), " ")
	if !strings.EqualFold(scheme, "Code") || !s.codes.Use(code) {
		s.refuse(x, wrongCode)
		return
	}
	body, err := json.Marshal(struct {
		Key string `json:"key"`
	}{s.o.Keys.Key().Reveal()})
	if err != nil {
		s.fail(x, err)
		return
	}
	s.answer(x, http.StatusOK, body)
}
