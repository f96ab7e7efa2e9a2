package api_test

import (
	"strings"
	"testing"

	"nexus.internal/bridge/api"
	"nexus.internal/protocol"
)

// Dollars are limits like the others, though they need not be whole.
func TestLimitInDollars(t *testing.T) {
	held := protocol.Limits{CostUSD: 1.25}
	given := api.Limits{CostUSD: new(2.5)}
	found := false
	for _, m := range given.Beside(&held) {
		if m.Name != "cost_usd" {
			continue
		}
		found = true
		if *m.Given != 2_500_000 || *m.Held != 1_250_000 || m.Text() != "1.25" {
			t.Errorf("got %d of %d, which is %s", *m.Given, *m.Held, m.Text())
		}
	}
	if got := given.Over(held).CostUSD; !found || got != 2.5 {
		t.Errorf("found %v, then %v", found, got)
	}
	if got := (api.Limits{}).Over(held).CostUSD; got != 1.25 {
		t.Errorf("what is not given becomes %v", got)
	}
	for _, dollars := range []float64{-1, 1e6 + 1} {
		if err := api.Check(api.Limits{CostUSD: &dollars}); err == nil || !strings.Contains(err.Error(), "cost_usd") {
			t.Errorf("%v: %v", dollars, err)
		}
	}
}
