package config_test

import (
	"testing"

	"nexus.internal/cmd/internal/config"
	"nexus.internal/protocol"
)

// A model is known by the address of its service, under whatever name that is configured, and
// by what the configuration adds to the table.
func TestKnownModels(t *testing.T) {
	c := load(t, `{"providers":{
		"work":{"type":"anthropic","api_key_env":"K"},
		"router":{"type":"openai","base_url":"https://openrouter.ai/api/v1/","api_key_env":"K"},
		"local":{"type":"openai","base_url":"http://127.0.0.1:1/v1","auth_method":"none"},
		"openai":{"models":[{"id":"gpt-4o","price":{"input":1,"output":2}},{"id":"ft:mine","context_window":9000,"tools":false}]},
		"ollama":{"base_url":"http://127.0.0.1:11434/v1","models":[{"id":"llama","context_window":8192}]}}}`,
		"AZURE_OPENAI_ENDPOINT=https://mine.openai.azure.com")
	for _, tt := range []struct {
		provider, model string
		window, output  uint64
		in, read        float64 // -1: no price
	}{
		{"anthropic", "claude-sonnet-4-5", 200_000, 64_000, 3, 0.3},
		{"work", "claude-sonnet-4-5-20250929", 200_000, 64_000, 3, 0.3},
		{"router", "anthropic/claude-sonnet-4.5", 200_000, 64_000, 3, 0.3},
		{"router", "openai/gpt-4o-mini", 128_000, 16_384, 0.15, 0.075},
		{"router", "anthropic/claude-sonnet-4.5:free", 0, 0, -1, -1},
		{"router", "somebody/model", 0, 0, -1, -1},
		{"azure", "gpt-4.1-2025-04-14", 1_047_576, 32_768, 2, 0.5},
		{"groq", "openai/gpt-oss-120b", 131_072, 65_536, 0.15, 0.075},
		{"gemini", "gemini-2.5-flash-latest", 1_048_576, 65_536, 0.3, 0.03},
		{"openai", "gpt-4o", 128_000, 16_384, 1, 1}, // the configured price, whole
		{"openai", "ft:mine", 9000, 0, -1, -1},
		{"openai", "gpt-4o-2024-05-13", 128_000, 4_096, 5, 5}, // a version with an entry of its own
		{"openai", "gpt-4o-2024-08-06", 128_000, 16_384, 2.5, 1.25},
		{"openai", "gpt-4o-audio-preview", 0, 0, -1, -1},
		{"local", "gpt-4o", 0, 0, -1, -1}, // nobody knows what that is
		{"ollama", "llama", 8192, 0, 0, 0},
		{"offline", "offline", 0, 0, 0, 0},
	} {
		p, err := c.Models.Provider(tt.provider)
		if err != nil {
			t.Fatal(err)
		}
		known := p.Known(tt.model)
		in, read := -1.0, -1.0
		if price, ok := c.Models.Price(tt.provider, tt.model); ok {
			in, read = price.Input, protocol.ValueOr(price.CacheRead, price.Input)
		}
		if known.ID != tt.model || known.ContextWindow != tt.window || known.MaxOutput != tt.output || in != tt.in || read != tt.read {
			t.Errorf("%s/%s: got %+v at %v, %v", tt.provider, tt.model, known, in, read)
		}
	}
	p, _ := c.Models.Provider("openai")
	if known := p.Known("ft:mine"); known.Tools == nil || *known.Tools || known.Images != nil {
		t.Errorf("got %+v", known)
	}
	if known := p.Known("gpt-4o"); !protocol.Value(known.Images) || !protocol.Value(known.Tools) || protocol.ValueOr(known.Reasoning, true) {
		t.Errorf("got %+v", known)
	}
}

// No model is in the table twice, and each has what a table is for.
func TestTable(t *testing.T) {
	if config.TableDate < "2026-07-24" {
		t.Errorf("the table is of %s", config.TableDate)
	}
	for service, entries := range config.Table() {
		seen := map[string]bool{}
		for _, m := range entries {
			if seen[m.ID] || m.ContextWindow < m.MaxOutput || m.MaxOutput == 0 || m.Price.Input <= 0 || m.Price.Output < m.Price.Input || *m.Price.CacheRead > m.Price.Input {
				t.Errorf("%s: %+v", service, m)
			}
			seen[m.ID] = true
		}
		if len(entries) == 0 {
			t.Errorf("%s has no models", service)
		}
	}
}
