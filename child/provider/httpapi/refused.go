package httpapi

import (
	"maps"
	"net/http"
	"strings"
	"sync"
)

// Refused remembers which parameters the models of a service refuse, so that these are asked
// for once. The zero value knows of none. It is safe for concurrent use.
type Refused struct {
	mu      sync.Mutex                 // guards byModel
	byModel map[string]map[string]bool // replaced, never changed in place
}

// By are those that a model refuses; it must not be changed.
func (r *Refused) By(model string) map[string]bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.byModel[model]
}

// Learn takes what the error says of a parameter that was sent, by name. It reports whether it
// names one: then the request may be made again without.
func (r *Refused) Learn(model string, refused *ServiceError, sent []string) bool {
	if refused.Status != http.StatusBadRequest && refused.Status != http.StatusUnprocessableEntity {
		return false
	}
	for _, name := range sent {
		if !strings.Contains(refused.Message, name) {
			continue
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.byModel == nil {
			r.byModel = map[string]map[string]bool{}
		}
		now := maps.Clone(r.byModel[model])
		if now == nil {
			now = map[string]bool{}
		}
		now[name] = true
		r.byModel[model] = now
		return true
	}
	return false
}
