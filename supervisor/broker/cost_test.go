package broker_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"nexus.internal/protocol"
	"nexus.internal/supervisor/broker"
)

// prices are those of the model m: its cached tokens cost a tenth.
type prices struct{}

func (prices) Price(model string) (protocol.Price, bool) {
	return protocol.Price{Input: 1000, Output: 2000, CacheRead: new(100.0)}, model == "m"
}

// askModel asks the provider p for that model, and names another one in the header perhaps.
func (h *house) askModel(socket, model, named string) (int, string) {
	h.Helper()
	res, answer := h.do(socket, "POST", "/p/chat/completions", fmt.Sprintf(`{"messages":[],"model":%q}`, model), http.Header{protocol.ModelHeader: {named}})
	return res.StatusCode, answer
}

// A budget in dollars holds over the agents that an agent made, is kept, and can be raised.
func TestBudgetInDollars(t *testing.T) {
	dir := t.TempDir()
	o := broker.Options{Accounts: accountsIn(dir), Limits: broker.Limits{Limits: protocol.Limits{CostUSD: 1.2}}, Providers: map[string]broker.Provider{}}
	h := newHouse(t, o, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get(protocol.ModelHeader) != "" {
			t.Error("the header reached the service")
		}
		costs(w, r)
	})
	p := broker.Provider{BaseURL: h.upstream.URL + "/v1", Auth: broker.None, Prices: prices{}}
	if err := h.Reload(map[string]broker.Provider{"p": p}, o.Limits, func() error { return nil }); err != nil {
		t.Fatal(err)
	}
	a, _ := h.start(broker.Agent{ID: "a"})
	b, _ := h.start(broker.Agent{ID: "b", Parent: "a"})
	for _, socket := range []string{a, b} { // 450 at 0.001, 50 at 0.0001, 100 at 0.002: $0.655 each
		if status, answer := h.askModel(socket, "m", "m"); status != 200 {
			t.Fatalf("got %d %s", status, answer)
		}
	}
	if got := h.usage("b").Cost; got < 0.6549 || got > 0.6551 {
		t.Errorf("it cost %v", got)
	}
	const want = `{"error":{"type":"budget_exceeded","message":"agent a has spent $1.31 of its $1.20: set_limits can raise limits.cost_usd"}}`
	if status, answer := h.askModel(b, "m", "m"); status != 402 || answer != want {
		t.Errorf("got %d %s", status, answer)
	}
	if held, err := h.AgentLimits("a"); err != nil || held.SpentUSD < 1.3 || held.SpentUSD > 1.32 {
		t.Errorf("got %+v, %v", held, err)
	}
	if kept, err := accountsIn(dir).Account("a"); err != nil || kept.SpentUSD < 1.3 || kept.Cost > 0.7 {
		t.Errorf("kept %+v, %v", kept, err)
	}
	if err := h.SetLimits("a", broker.Limits{Limits: protocol.Limits{CostUSD: 0.0015}}); err != nil {
		t.Fatal(err)
	}
	if _, answer := h.askModel(b, "m", "m"); !strings.Contains(answer, "has spent $1.31 of its $0.0015: ") {
		t.Errorf("of a small limit: %s", answer)
	}
	if err := h.SetLimits("a", broker.Limits{Limits: protocol.Limits{CostUSD: 2}}); err != nil {
		t.Fatal(err)
	}
	if status, answer := h.askModel(b, "m", "m"); status != 200 {
		t.Errorf("got %d %s", status, answer)
	}
	if cost := h.Stats().Providers["p"].Used.Cost; cost < 1.96 || cost > 1.97 {
		t.Errorf("the provider cost %v", cost)
	}
}

// Nobody spends what nobody can count: without a limit in dollars any model may be asked, with
// one those whose price is known.
func TestBudgetNeedsPrices(t *testing.T) {
	h := newHouse(t, broker.Options{}, costs)
	free, _ := h.start(broker.Agent{ID: "free"})
	bound, _ := h.start(broker.Agent{ID: "bound", Limits: &broker.Limits{Limits: protocol.Limits{CostUSD: 1}}})
	if status, answer := h.askModel(free, "x", "x"); status != 200 {
		t.Errorf("got %d %s", status, answer)
	}
	for _, named := range []string{"x", ""} {
		status, answer := h.askModel(bound, "x", named)
		if status != 402 || !strings.Contains(answer, `"type":"unknown_price","message":"agent bound may spend $1.00, and what model \"`+named+`\" of provider p costs is not known`) {
			t.Errorf("got %d %s", status, answer)
		}
	}
	if h.usage("bound").Requests != 0 {
		t.Error("a request reached the service")
	}
}

// Who names a cheap model and asks another one pays for the other one.
func TestCostIsOfTheModelThatWasAsked(t *testing.T) {
	h := newHouse(t, broker.Options{}, costs)
	p := broker.Provider{BaseURL: h.upstream.URL + "/v1", Auth: broker.None, Prices: prices{}}
	if err := h.Reload(map[string]broker.Provider{"p": p}, broker.Limits{}, func() error { return nil }); err != nil {
		t.Fatal(err)
	}
	a, _ := h.start(broker.Agent{ID: "a"})
	if status, answer := h.askModel(a, "m", "x"); status != 200 || h.usage("a").Cost < 0.65 {
		t.Errorf("got %d %s, cost %v", status, answer, h.usage("a").Cost)
	}
}

// The model that a service takes is the one that is paid for: it gets no request that names another one in some way,
// and none of a model whose price is not known, whatever the header says, also where it got the beginning.
func TestRequestHasOnePrice(t *testing.T) {
	const (
		twice   = `{"error":{"type":"invalid_request_error","message":"the request must name its model once, as \"model\""}}`
		escaped = `{"error":{"type":"invalid_request_error","message":"a name of a member at the top of the request has a backslash: write it without escapes"}}`
		noJSON  = `{"error":{"type":"invalid_request_error","message":"the request is no JSON object: `
		unknown = `{"error":{"type":"unknown_price","message":"agent a may spend $10.00, and what model \"big\" of provider p costs is not known`
		several = `{"error":{"type":"unknown_price","message":"agent a may spend $10.00, so its request may not name other models in \"models\"`
	)
	var whole atomic.Int32
	h := newHouse(t, broker.Options{}, func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			return // what broke off is no request
		}
		whole.Add(1)
		costs(w, r)
	})
	p := broker.Provider{BaseURL: h.upstream.URL + "/v1", Auth: broker.None, Prices: prices{}}
	if err := h.Reload(map[string]broker.Provider{"p": p}, broker.Limits{}, func() error { return nil }); err != nil {
		t.Fatal(err)
	}
	socket, _ := h.start(broker.Agent{ID: "a", Limits: &broker.Limits{Limits: protocol.Limits{CostUSD: 10}}})
	long := `"x":"` + strings.Repeat("y", 1<<20) + `"`
	for _, tt := range []struct {
		body   string
		status int
		answer string
	}{
		{`{"model":"m","model":"big"}`, 400, twice},
		{`{"model":"m",` + long + `,"model":"big"}`, 400, twice},
		{`{"model":"m",` + long + `,"Model":"big"}`, 400, twice},
		{`{"model":"m",` + long + `,"\u006dodel":"big"}`, 400, escaped},
		{`{"model":"m"}{"model":"big"}`, 400, noJSON + `unexpected \"{\""}}`},
		{`{"model":"m",` + long + `,"background":true}`, 400, `{"error":{"type":"invalid_request_error","message":"the request asks to be answered in the background`},
		{`{"model":"m","messages":[]`, 400, noJSON + `it has no end"}}`},
		{`{` + long + `,"model":"big"}`, 402, unknown},
		{`{"model":"big"}`, 402, unknown},
		{`{"model":"m","models":["big"]}`, 402, several},
		{`{"model":"m"}`, 200, ""},
		{`{` + long + `,"model":"m"}`, 200, ""},
	} {
		for _, length := range []string{"known", "unknown"} {
			whole.Store(0)
			var body io.Reader = strings.NewReader(tt.body)
			if length == "unknown" {
				body = struct{ io.Reader }{body}
			}
			r, err := http.NewRequestWithContext(t.Context(), "POST", "http://broker/p/chat/completions", body)
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set(protocol.ModelHeader, "m")
			res, err := client(socket).Do(r)
			if err != nil {
				t.Fatalf("%.40s of %s length: %v", tt.body, length, err)
			}
			answer, err := io.ReadAll(res.Body)
			res.Body.Close()
			if err != nil || res.StatusCode != tt.status || !strings.HasPrefix(string(answer), tt.answer) || (whole.Load() == 1) != (tt.status == 200) {
				t.Errorf("%.40s of %s length: got %d %s (%v), and the service %d requests; want %d %s", tt.body, length, res.StatusCode, answer, err, whole.Load(), tt.status, tt.answer)
			}
		}
	}
	if got := h.usage("a").Cost; got < 4*0.6549 || got > 4*0.6551 {
		t.Errorf("they cost %v", got)
	}
}

// A service that counts a stream only if it is asked to is found out by the first one that does not ask: then a program of another make whose agent has
// a limit must ask. Others need not.
func TestStreamsAreCounted(t *testing.T) {
	h := newHouse(t, broker.Options{}, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // what broke off is no request
		}
		if r.Header.Get(protocol.ProgramHeader) != "" {
			t.Error("the header reached the service")
		}
		if !strings.Contains(string(body), `"stream":true`) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"choices":[{"message":{"content":"42"},"finish_reason":"stop"}]}`)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, `data: {"choices":[{"delta":{"content":"42"},"finish_reason":"stop"}]}`+"\n\n")
		if strings.Contains(string(body), `"include_usage":true`) || strings.Contains(string(body), "counts unasked") {
			_, _ = io.WriteString(w, `data: {"choices":[],"usage":{"prompt_tokens":10,"completion_tokens":50000}}`+"\n\n")
		}
		_, _ = io.WriteString(w, "data: [DONE]\n\n")
	})
	p := broker.Provider{BaseURL: h.upstream.URL + "/v1", Auth: broker.None, Prices: prices{}}
	if err := h.Reload(map[string]broker.Provider{"p": p}, broker.Limits{}, func() error { return nil }); err != nil {
		t.Fatal(err)
	}
	limited, _ := h.start(broker.Agent{ID: "limited", Limits: &broker.Limits{Limits: protocol.Limits{Tokens: 10_000_000}}})
	free, _ := h.start(broker.Agent{ID: "free"})
	const unasked, asked = `{"model":"m","stream":true,"messages":[]}`, `{"model":"m","stream":true,"stream_options":{"include_usage":true},"messages":[]}`
	for i, tt := range []struct {
		socket, body, program string
		status                int
	}{
		{limited, `{"model":"m","stream":true,"messages":["counts unasked"]}`, "1", 200},
		{limited, unasked, "1", 200}, // by which it is found out
		{limited, unasked, "1", 400},
		{limited, asked, "1", 200},
		{limited, unasked, "", 200}, // of nexus's own child, which asks where it can
		{limited, `{"model":"m","messages":[]}`, "1", 200},
		{free, unasked, "1", 200},
	} {
		header := http.Header{protocol.ModelHeader: {"m"}}
		if tt.program != "" {
			header.Set(protocol.ProgramHeader, tt.program)
		}
		res, answer := h.do(tt.socket, "POST", "/p/chat/completions", tt.body, header)
		if res.StatusCode != tt.status || tt.status == 400 && !strings.Contains(answer, `agent limited`) {
			t.Errorf("%d: got %d %s, want %d", i, res.StatusCode, answer, tt.status)
		}
	}
	if got := h.usage("limited").Output; got < 100_000 || got > 100_100 {
		t.Errorf("counted are %d tokens", got)
	}
}

// Services that take "true", 1 or "on" as true stream what was let in as a plain request. Where something is limited such values are refused; a stream that
// comes nevertheless shows that the service leaves such ones uncounted, and the next one is ended.
func TestStreamsOfCoercedRequests(t *testing.T) {
	h := newHouse(t, broker.Options{}, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // what broke off is no request
		}
		if strings.Contains(string(body), "plain") {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"choices":[{"message":{"content":"42"},"finish_reason":"stop"}]}`)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, `data: {"choices":[{"delta":{"content":"42"},"finish_reason":"stop"}]}`+"\n\n"+"data: [DONE]\n\n")
	})
	p := broker.Provider{BaseURL: h.upstream.URL + "/v1", Auth: broker.None, Prices: prices{}}
	if err := h.Reload(map[string]broker.Provider{"p": p}, broker.Limits{}, func() error { return nil }); err != nil {
		t.Fatal(err)
	}
	limited, _ := h.start(broker.Agent{ID: "limited", Limits: &broker.Limits{Limits: protocol.Limits{Tokens: 10_000_000}}})
	rated, _ := h.start(broker.Agent{ID: "rated", Limits: &broker.Limits{Limits: protocol.Limits{TokensPerMinute: 10_000_000}}})
	made, _ := h.start(broker.Agent{ID: "made", Parent: "limited"})
	free, _ := h.start(broker.Agent{ID: "free"})
	ask := func(socket, members string) (int, string) {
		t.Helper()
		res, answer := h.do(socket, "POST", "/p/chat/completions", `{"model":"m","messages":[]`+members+`}`, http.Header{protocol.ModelHeader: {"m"}, protocol.ProgramHeader: {"1"}})
		return res.StatusCode, answer
	}
	for _, member := range []string{`"stream":"true"`, `"stream":1`, `"stream":1.0`, `"stream":"on"`, `"STREAM":1`, `"background":"true"`, `"background":1`} {
		for agent, socket := range map[string]string{"limited": limited, "rated": rated, "made": made} {
			if status, answer := ask(socket, ","+member); status != 400 || !strings.Contains(answer, "must be true or false") {
				t.Errorf("%s of agent %s: got %d %s", member, agent, status, answer)
			}
		}
		if status, answer := ask(free, ","+member); status != 200 {
			t.Errorf("%s of an agent without limits: got %d %s", member, status, answer)
		}
	}
	if err := h.Reload(map[string]broker.Provider{"p": p}, broker.Limits{}, func() error { return nil }); err != nil { // nothing is known of the service any more
		t.Fatal(err)
	}
	for i, tt := range []struct {
		socket, members string
		status          int
	}{
		{limited, `,"x":"plain"`, 200}, // left uncounted, but no stream
		{limited, `,"x":true`, 200},    // by which it is found out
		{limited, `,"x":true`, 502},
		{rated, `,"stream":false`, 502},
		{made, `,"stream":true`, 400},
		{limited, `,"stream":true,"stream_options":{"include_usage":true}`, 200},
		{limited, `,"x":"plain"`, 200},
		{free, `,"x":true`, 200},
	} {
		if status, answer := ask(tt.socket, tt.members); status != tt.status {
			t.Errorf("%d: got %d %s, want %d", i, status, answer, tt.status)
		}
	}
}
