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
	for dollars, want := range map[float64]string{
		-1:       "limits.cost_usd: want dollars from 0 to 1000000, where 0 is no limit, not -1",
		-0.25:    "not -0.25",
		1e6 + 1:  "from 0 to 1000000",
		1e6:      "",
		0:        "",
		0.000001: "",
	} {
		err := api.Check(api.Limits{CostUSD: &dollars})
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%v: %v, want %q", dollars, err, want)
		}
	}
}
