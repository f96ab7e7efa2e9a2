package config_test

import (
	"strings"
	"testing"

	"nexus.internal/cmd/internal/config"
)

// A service known by name needs nothing but its key, or what a file adds to it.
func TestKnownByName(t *testing.T) {
	const endpoint = "AZURE_OPENAI_ENDPOINT=https://mine.openai.azure.com/"
	for _, tt := range []struct {
		name, file, environ string
		want                string // base_url, auth_method, api_key_env
	}{
		{"openrouter", "", "", "https://openrouter.ai/api/v1 bearer OPENROUTER_API_KEY"},
		{"ollama", "", "", "http://127.0.0.1:11434/v1 none "},
		{"groq", "", "", "https://api.groq.com/openai/v1 bearer GROQ_API_KEY"},
		{"mistral", "", "", "https://api.mistral.ai/v1 bearer MISTRAL_API_KEY"},
		{"deepseek", "", "", "https://api.deepseek.com bearer DEEPSEEK_API_KEY"},
		{"gemini", "", "", "https://generativelanguage.googleapis.com/v1beta/openai bearer GEMINI_API_KEY"},
		{"azure", "", "", " api-key AZURE_OPENAI_API_KEY"},
		{"azure", "", endpoint, "https://mine.openai.azure.com/openai/v1 api-key AZURE_OPENAI_API_KEY"},
		{"azure", "", "AZURE_OPENAI_ENDPOINT=https://x.example/?api-version=v1", "https://x.example/openai/v1?api-version=v1 api-key AZURE_OPENAI_API_KEY"},
		{"azure", "", "AZURE_OPENAI_ENDPOINT=https://x.example/openai/deployments/d", "https://x.example/openai/deployments/d api-key AZURE_OPENAI_API_KEY"},
		{"azure", `{"base_url":"https://other.openai.azure.com/openai/v1"}`, endpoint, "https://other.openai.azure.com/openai/v1 api-key AZURE_OPENAI_API_KEY"},
		{"ollama", `{"base_url":"http://gpu.example:11434/v1"}`, "", "http://gpu.example:11434/v1 none "},
		{"groq", `{"models":[{"id":"m"}]}`, "", "https://api.groq.com/openai/v1 bearer GROQ_API_KEY"},
		{"openai", `{"type":"openai-responses"}`, "", "https://api.openai.com/v1 bearer OPENAI_API_KEY"},
		{"mine", `{"type":"openai-responses","api_key_env":"K"}`, "", "https://api.openai.com/v1 bearer K"},
		{"groq", `{"api_key_env":"TEAM_KEY"}`, "", "https://api.groq.com/openai/v1 bearer TEAM_KEY"},
		// The key of a service is for its own address, and for no way of sending that it does not know.
		{"groq", `{"base_url":"https://elsewhere.example/v1"}`, "", "https://elsewhere.example/v1 bearer "},
		{"groq", `{"auth_method":"x-api-key"}`, "", "https://api.groq.com/openai/v1 x-api-key "},
		{"groq", `{"type":"anthropic"}`, "", "https://api.anthropic.com x-api-key "},
	} {
		text := ""
		if tt.file != "" {
			text = `{"providers":{"` + tt.name + `":` + tt.file + `}}`
		}
		p, err := load(t, text, tt.environ).Models.Provider(tt.name)
		if got := p.BaseURL + " " + p.AuthMethod + " " + p.APIKeyEnv; err != nil || got != tt.want {
			t.Errorf("%s %s: got %q, %v, want %q", tt.name, tt.file, got, err, tt.want)
		}
	}
}

// Azure is at no address that everybody shares: who chooses it without one is told what to set.
func TestAzureWithoutAddress(t *testing.T) {
	_, err := load(t, "").Models.Choose(config.Wish{Model: "azure/gpt-4o"})
	if err == nil || !strings.Contains(err.Error(), "set the environment variable AZURE_OPENAI_ENDPOINT") {
		t.Errorf("got %v", err)
	}
	choice, err := load(t, "", "AZURE_OPENAI_ENDPOINT=https://mine.openai.azure.com").Models.Choose(config.Wish{Model: "azure/gpt-4o"})
	if err != nil || choice.Name != "azure" || choice.Model != "gpt-4o" {
		t.Errorf("got %+v, %v", choice, err)
	}
}

// A provider that a file defines is the one for a default model without a provider, though its
// name is known.
func TestDefinedByName(t *testing.T) {
	choice, err := load(t, `{"providers":{"openrouter":{}},"default_model":"maker/m"}`).Models.Choose(config.Wish{})
	if err != nil || choice.Name != "openrouter" || choice.Model != "maker/m" {
		t.Errorf("got %+v, %v", choice, err)
	}
}
