package bridge_test

import (
	"net/http"
	"testing"
	"time"

	"nexus.internal/bridge"
	"nexus.internal/bridge/auth"
)

// slowFigures are told when they are let go.
type slowFigures struct {
	figures
	let chan struct{}
}

func (f slowFigures) Spares() (waiting int, used uint64) {
	<-f.let
	return 0, 0
}

// Neither one key for less nor all together have all scrapes that run at once.
func TestAttackScrapesOfScopedKeys(t *testing.T) {
	let := make(chan struct{})
	r := rigged(t, func(_ *rig, o *bridge.Options) { o.Status = slowFigures{let: let} })
	answers := make(chan int)
	begin := func(bearer string) {
		go func() {
			request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+r.addr+"/metrics", nil)
			if err != nil {
				t.Error(err)
				return
			}
			request.Header.Set("Authorization", bearer)
			request.Close = true
			response, err := http.DefaultClient.Do(request)
			if err != nil {
				answers <- 0
				return
			}
			_ = response.Body.Close()
			answers <- response.StatusCode
		}()
	}
	one, _ := r.scoped(auth.ScopeRead, "")
	other, _ := r.scoped(auth.ScopeRead, "")
	under := 0
	for _, who := range []struct {
		name, bearer string
		most         int // of which one more is refused
	}{{"a key for less", one, 2}, {"another one, beside it", other, 1}, {"the full key", "Bearer " + r.key.Reveal(), 1}} {
		for range who.most + 1 {
			begin(who.bearer)
		}
		select {
		case status := <-answers:
			if status != http.StatusServiceUnavailable {
				t.Errorf("%s: HTTP %d", who.name, status)
			}
		case <-time.After(patience):
			t.Errorf("%s: more than %d run", who.name, who.most)
			under++
		}
		under += who.most
	}
	close(let)
	for range under {
		if status := <-answers; status != http.StatusOK {
			t.Errorf("one that ran: HTTP %d", status)
		}
	}
}
