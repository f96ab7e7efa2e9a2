package child

import "nexus.internal/protocol"

// usageTotals are what a session used. The zero value is nothing. Its owner guards it.
type usageTotals struct {
	sum     protocol.TurnUsage
	byModel map[string]protocol.TurnUsage // the parts of sum, by Selected.name
}

func (t *usageTotals) add(model string, usage protocol.TurnUsage) {
	t.sum.Add(usage)
	if t.byModel == nil {
		t.byModel = map[string]protocol.TurnUsage{}
	}
	part := t.byModel[model]
	part.Add(usage)
	t.byModel[model] = part
}

func (t *usageTotals) tokens() protocol.SessionUsage {
	return protocol.SessionUsage{
		InputTokens: t.sum.InputTokens, OutputTokens: t.sum.OutputTokens,
		CacheReadInputTokens: t.sum.CacheReadInputTokens, CacheCreationInputTokens: t.sum.CacheCreationInputTokens,
	}
}

// cost is the price of the usage, at today's prices, in US dollars; nil where one of
// them is not known.
func (t *usageTotals) cost(prices Models) *float64 {
	all := 0.0
	for model, usage := range t.byModel {
		if usage.InputTokens == 0 && usage.OutputTokens == 0 {
			continue
		}
		price, ok := prices.Price(model)
		if !ok {
			return nil
		}
		all += price.Cost(usage)
	}
	return &all
}
