package protocol_test

import (
	"math"
	"testing"

	"nexus.internal/protocol"
)

// Cached tokens are part of the input, and have prices of their own where there are such.
func TestPriceCost(t *testing.T) {
	tenth := 0.3
	usage := protocol.TurnUsage{InputTokens: 1_000_000, OutputTokens: 100_000, CacheReadInputTokens: 400_000, CacheCreationInputTokens: 100_000}
	for name, c := range map[string]struct {
		price protocol.Price
		usage protocol.TurnUsage
		want  float64
	}{
		"without prices of the cache": {protocol.Price{Input: 3, Output: 15}, usage, 3 + 1.5},
		"cached tokens at a tenth":    {protocol.Price{Input: 3, Output: 15, CacheRead: &tenth}, usage, 0.6*3 + 0.4*0.3 + 1.5},
		"more cached than sent":       {protocol.Price{Input: 3, CacheRead: &tenth}, protocol.TurnUsage{InputTokens: 10, CacheReadInputTokens: 20}, 10 * 0.3 / 1e6},
		"nothing":                     {protocol.Price{Input: 3}, protocol.TurnUsage{}, 0},
	} {
		if got := c.price.Cost(c.usage); math.Abs(got-c.want) > 1e-12 {
			t.Errorf("%s: $%v, want $%v", name, got, c.want)
		}
	}
}
