package protocol

import "math"

// TurnUsage is what a turn cost, in tokens.
type TurnUsage struct {
	// InputTokens is the number of prompt tokens sent to the model.
	InputTokens uint64 `json:"input_tokens"`
	// OutputTokens is the number of completion tokens it returned.
	OutputTokens uint64 `json:"output_tokens"`
	// CacheReadInputTokens were served from the provider's prompt cache.
	CacheReadInputTokens uint64 `json:"cache_read_input_tokens" wire:"default"`
	// CacheCreationInputTokens were written into the provider's prompt cache.
	CacheCreationInputTokens uint64 `json:"cache_creation_input_tokens" wire:"default"`
	// CacheCreation5m and CacheCreation1h split the cache writes by their time
	// to live; nil where the provider does not say.
	CacheCreation5m *uint64 `json:"cache_creation_5m,omitzero"`
	CacheCreation1h *uint64 `json:"cache_creation_1h,omitzero"`
	// Estimated says that the model's service did not count all of it.
	Estimated bool `json:"estimated,omitzero" wire:"default"`
	// Model is the model that answered, nil if unknown.
	Model *string `json:"model,omitzero"`
	// Cost is in US dollars; nil if a price is not known, and where nothing is paid for.
	Cost *float64 `json:"cost,omitzero"`
}

// Add adds the counts of v to u; a sum that does not fit stays at the largest
// number. The model of the later one holds. The cost is unknown if that of either is.
func (u *TurnUsage) Add(v TurnUsage) {
	switch {
	case u.empty():
		u.Cost = v.Cost
	case v.empty():
	case u.Cost == nil || v.Cost == nil:
		u.Cost = nil
	default:
		u.Cost = new(*u.Cost + *v.Cost)
	}
	u.InputTokens = sum(u.InputTokens, v.InputTokens)
	u.OutputTokens = sum(u.OutputTokens, v.OutputTokens)
	u.CacheReadInputTokens = sum(u.CacheReadInputTokens, v.CacheReadInputTokens)
	u.CacheCreationInputTokens = sum(u.CacheCreationInputTokens, v.CacheCreationInputTokens)
	u.CacheCreation5m = addCount(u.CacheCreation5m, v.CacheCreation5m)
	u.CacheCreation1h = addCount(u.CacheCreation1h, v.CacheCreation1h)
	u.Estimated = u.Estimated || v.Estimated
	if v.Model != nil {
		u.Model = v.Model
	}
}

// Without is u but for the tokens of v, which are a part of it.
func (u TurnUsage) Without(v TurnUsage) TurnUsage {
	u.InputTokens -= min(u.InputTokens, v.InputTokens)
	u.OutputTokens -= min(u.OutputTokens, v.OutputTokens)
	u.CacheReadInputTokens -= min(u.CacheReadInputTokens, v.CacheReadInputTokens)
	u.CacheCreationInputTokens -= min(u.CacheCreationInputTokens, v.CacheCreationInputTokens)
	return u
}

func (u *TurnUsage) empty() bool { return u.InputTokens == 0 && u.OutputTokens == 0 }

func addCount(a, b *uint64) *uint64 {
	if a == nil {
		return b
	}
	if b == nil {
		return a
	}
	both := sum(*a, *b)
	return &both
}

func sum(a, b uint64) uint64 {
	if a > math.MaxUint64-b {
		return math.MaxUint64
	}
	return a + b
}

// Price is what tokens of a model cost, in US dollars for a million of them.
type Price struct {
	Input  float64 `json:"input"`
	Output float64 `json:"output"`
	// CacheRead and CacheWrite are for those of the input that the provider's cache
	// served or took; nil is the price of Input.
	CacheRead  *float64 `json:"cache_read" wire:"default"`
	CacheWrite *float64 `json:"cache_write" wire:"default"`
}

// Cost is the price of a usage, in US dollars. Cached tokens are a part of the input
// tokens.
func (p Price) Cost(u TurnUsage) float64 {
	read := min(u.CacheReadInputTokens, u.InputTokens)
	write := min(u.CacheCreationInputTokens, u.InputTokens-read)
	cost := float64(u.InputTokens-read-write)*p.Input + float64(u.OutputTokens)*p.Output
	cost += float64(read) * ValueOr(p.CacheRead, p.Input)
	cost += float64(write) * ValueOr(p.CacheWrite, p.Input)
	return cost / 1e6
}
