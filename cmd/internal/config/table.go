package config

import (
	"strings"

	"nexus.internal/protocol"
)

// TableDate is the day on which the table of models was last compared with what the
// services publish.
const TableDate = "2026-07-24"

// able is what a model can do.
type able uint8

const (
	images able = 1 << iota
	tools
	reasoning
)

// entry is what a service publishes about a model. Its id has no date at its end.
type entry struct {
	id             string
	window, output uint64 // tokens
	// In US dollars for a million tokens.
	in, out, cacheRead, cacheWrite float64
	able                           able
}

func (e entry) model() Model {
	return Model{
		ID: e.id, ContextWindow: e.window, MaxOutput: e.output,
		Price:  &protocol.Price{Input: e.in, Output: e.out, CacheRead: &e.cacheRead, CacheWrite: &e.cacheWrite},
		Images: new(e.able&images != 0), Tools: new(e.able&tools != 0), Reasoning: new(e.able&reasoning != 0),
	}
}

// published finds a model in the table; false if it is not there. What runs on one's own
// machine costs nothing.
func published(p Provider, id string) (Model, bool) {
	service := vendorOf(p)
	switch service {
	case "ollama":
		return Model{ID: id, Price: &protocol.Price{}}, true
	case "azure": // whose deployments mostly have the names of their models
		service = "openai"
	case "openrouter":
		maker, name, _ := strings.Cut(id, "/")
		switch maker {
		case "openai":
			service, id = maker, name
		case "anthropic":
			service, id = maker, strings.ReplaceAll(name, ".", "-")
		case "google":
			service, id = "gemini", name
		}
	}
	var dated Model
	found := false
	for _, e := range table(service) {
		switch {
		case e.id == id:
			return e.model(), true
		case isDated(id, e.id):
			dated, found = e.model(), true
		}
	}
	return dated, found
}

// isDated reports whether id is a version of the model: its id, a dash, and a day as 20250929
// or 2025-09-29, or latest.
func isDated(id, model string) bool {
	rest, ok := strings.CutPrefix(id, model+"-")
	day := strings.ReplaceAll(rest, "-", "")
	return ok && (rest == "latest" || len(day) == 8 && strings.Trim(day, "0123456789") == "")
}

// table are the models of a service.
func table(service string) []entry {
	switch service {
	case "anthropic":
		return ofAnthropic
	case "openai":
		return ofOpenAI
	case "gemini":
		return ofGemini
	case "groq":
		return ofGroq
	case "mistral":
		return ofMistral
	case "deepseek":
		return ofDeepSeek
	}
	return nil
}

var ofAnthropic = []entry{
	{"claude-3-haiku", 200_000, 4_096, 0.25, 1.25, 0.03, 0.3, images | tools},
	{"claude-3-7-sonnet", 200_000, 64_000, 3, 15, 0.3, 3.75, images | tools | reasoning},
	{"claude-opus-4", 200_000, 32_000, 15, 75, 1.5, 18.75, images | tools | reasoning},
	{"claude-sonnet-4", 200_000, 64_000, 3, 15, 0.3, 3.75, images | tools | reasoning},
	{"claude-opus-4-1", 200_000, 32_000, 15, 75, 1.5, 18.75, images | tools | reasoning},
	{"claude-haiku-4-5", 200_000, 64_000, 1, 5, 0.1, 1.25, images | tools | reasoning},
	{"claude-sonnet-4-5", 200_000, 64_000, 3, 15, 0.3, 3.75, images | tools | reasoning},
	{"claude-opus-4-5", 200_000, 64_000, 5, 25, 0.5, 6.25, images | tools | reasoning},
	{"claude-sonnet-4-6", 1_000_000, 64_000, 3, 15, 0.3, 3.75, images | tools | reasoning},
	{"claude-opus-4-6", 1_000_000, 128_000, 5, 25, 0.5, 6.25, images | tools | reasoning},
	{"claude-opus-4-7", 1_000_000, 128_000, 5, 25, 0.5, 6.25, images | tools | reasoning},
}

var ofOpenAI = []entry{
	{"gpt-4-turbo", 128_000, 4_096, 10, 30, 10, 10, images | tools},
	{"gpt-4o", 128_000, 16_384, 2.5, 10, 1.25, 2.5, images | tools},
	{"gpt-4o-2024-05-13", 128_000, 4_096, 5, 15, 5, 5, images | tools},
	{"gpt-4o-mini", 128_000, 16_384, 0.15, 0.6, 0.075, 0.15, images | tools},
	{"gpt-4.1", 1_047_576, 32_768, 2, 8, 0.5, 2, images | tools},
	{"gpt-4.1-mini", 1_047_576, 32_768, 0.4, 1.6, 0.1, 0.4, images | tools},
	{"gpt-4.1-nano", 1_047_576, 32_768, 0.1, 0.4, 0.025, 0.1, images | tools},
	{"o1", 200_000, 100_000, 15, 60, 7.5, 15, images | tools | reasoning},
	{"o3", 200_000, 100_000, 2, 8, 0.5, 2, images | tools | reasoning},
	{"o3-mini", 200_000, 100_000, 1.1, 4.4, 0.55, 1.1, tools | reasoning},
	{"o3-pro", 200_000, 100_000, 20, 80, 20, 20, images | tools | reasoning},
	{"o4-mini", 200_000, 100_000, 1.1, 4.4, 0.275, 1.1, images | tools | reasoning},
	{"gpt-5", 272_000, 128_000, 1.25, 10, 0.125, 1.25, images | tools | reasoning},
	{"gpt-5-mini", 272_000, 128_000, 0.25, 2, 0.025, 0.25, images | tools | reasoning},
	{"gpt-5-nano", 272_000, 128_000, 0.05, 0.4, 0.005, 0.05, images | tools | reasoning},
	{"gpt-5-codex", 272_000, 128_000, 1.25, 10, 0.125, 1.25, images | tools | reasoning},
	{"gpt-5-pro", 400_000, 128_000, 15, 120, 15, 15, images | tools | reasoning},
	{"gpt-5.1", 272_000, 128_000, 1.25, 10, 0.125, 1.25, images | tools | reasoning},
	{"gpt-5.1-codex", 272_000, 128_000, 1.25, 10, 0.125, 1.25, images | tools | reasoning},
	{"gpt-5.1-codex-mini", 272_000, 128_000, 0.25, 2, 0.025, 0.25, images | tools | reasoning},
	{"gpt-5.2", 272_000, 128_000, 1.75, 14, 0.175, 1.75, images | tools | reasoning},
	{"gpt-5.2-codex", 272_000, 128_000, 1.75, 14, 0.175, 1.75, images | tools | reasoning},
	{"gpt-5.2-pro", 272_000, 128_000, 21, 168, 21, 21, images | tools | reasoning},
	{"gpt-5.3-codex", 272_000, 128_000, 1.75, 14, 0.175, 1.75, images | tools | reasoning},
	{"gpt-5.4", 1_050_000, 128_000, 2.5, 15, 0.25, 2.5, images | tools | reasoning},
	{"gpt-5.4-mini", 400_000, 128_000, 0.75, 4.5, 0.075, 0.75, images | tools | reasoning},
	{"gpt-5.4-nano", 400_000, 128_000, 0.2, 1.25, 0.02, 0.2, images | tools | reasoning},
	{"gpt-5.4-pro", 1_050_000, 128_000, 30, 180, 3, 30, images | tools | reasoning},
	{"gpt-5.5", 1_050_000, 128_000, 5, 30, 0.5, 5, images | tools | reasoning},
	{"gpt-5.5-pro", 1_050_000, 128_000, 30, 180, 3, 30, images | tools | reasoning},
}

// Of prompts up to 200,000 tokens; longer ones cost more.
var ofGemini = []entry{
	{"gemini-2.0-flash", 1_048_576, 8_192, 0.1, 0.4, 0.025, 0.1, images | tools},
	{"gemini-2.5-flash-lite", 1_048_576, 65_536, 0.1, 0.4, 0.01, 0.1, images | tools | reasoning},
	{"gemini-2.5-flash", 1_048_576, 65_536, 0.3, 2.5, 0.03, 0.3, images | tools | reasoning},
	{"gemini-2.5-pro", 1_048_576, 65_536, 1.25, 10, 0.125, 1.25, images | tools | reasoning},
	{"gemini-3-pro-preview", 1_048_576, 65_536, 2, 12, 0.2, 2, images | tools | reasoning},
}

var ofGroq = []entry{
	{"llama-3.1-8b-instant", 131_072, 131_072, 0.05, 0.08, 0.05, 0.05, tools},
	{"llama-3.3-70b-versatile", 131_072, 32_768, 0.59, 0.79, 0.59, 0.59, tools},
	{"meta-llama/llama-4-scout-17b-16e-instruct", 131_072, 8_192, 0.11, 0.34, 0.11, 0.11, images | tools},
	{"moonshotai/kimi-k2-instruct-0905", 262_144, 16_384, 1, 3, 0.5, 1, tools},
	{"openai/gpt-oss-20b", 131_072, 65_536, 0.075, 0.3, 0.0375, 0.075, tools | reasoning},
	{"openai/gpt-oss-120b", 131_072, 65_536, 0.15, 0.6, 0.075, 0.15, tools | reasoning},
	{"qwen/qwen3-32b", 131_072, 40_960, 0.29, 0.59, 0.29, 0.29, tools | reasoning},
}

var ofMistral = []entry{
	{"codestral-2508", 256_000, 256_000, 0.3, 0.9, 0.3, 0.3, tools},
	{"devstral-medium-2507", 131_072, 131_072, 0.4, 2, 0.4, 0.4, tools},
	{"devstral-small-2507", 131_072, 131_072, 0.1, 0.3, 0.1, 0.1, tools},
	{"mistral-large-2411", 131_072, 131_072, 2, 6, 2, 2, tools},
	{"mistral-medium-2508", 131_072, 131_072, 0.4, 2, 0.4, 0.4, images | tools},
	{"mistral-small-2506", 131_072, 131_072, 0.1, 0.3, 0.1, 0.1, images | tools},
}

var ofDeepSeek = []entry{
	{"deepseek-chat", 131_072, 8_192, 0.28, 0.42, 0.028, 0.28, tools},
	{"deepseek-reasoner", 131_072, 65_536, 0.28, 0.42, 0.028, 0.28, tools | reasoning},
}
