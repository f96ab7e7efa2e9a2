package config

import (
	"cmp"
	"fmt"
	"net/url"
	"strings"
)

// vendors are the services that are known by name. Azure has an address for each
// customer: see [Config.vendor].
var vendors = map[string]Provider{
	"offline": {Type: "offline", AuthMethod: "none"},
	"anthropic": {
		Type: "anthropic", BaseURL: "https://api.anthropic.com", APIKeyEnv: "ANTHROPIC_API_KEY", AuthMethod: "x-api-key",
	},
	"openai":     {Type: "openai", BaseURL: "https://api.openai.com/v1", APIKeyEnv: "OPENAI_API_KEY", AuthMethod: "bearer"},
	"azure":      {Type: "openai", APIKeyEnv: "AZURE_OPENAI_API_KEY", AuthMethod: "api-key"},
	"deepseek":   {Type: "openai", BaseURL: "https://api.deepseek.com", APIKeyEnv: "DEEPSEEK_API_KEY", AuthMethod: "bearer"},
	"gemini":     {Type: "openai", BaseURL: "https://generativelanguage.googleapis.com/v1beta/openai", APIKeyEnv: "GEMINI_API_KEY", AuthMethod: "bearer"},
	"groq":       {Type: "openai", BaseURL: "https://api.groq.com/openai/v1", APIKeyEnv: "GROQ_API_KEY", AuthMethod: "bearer"},
	"mistral":    {Type: "openai", BaseURL: "https://api.mistral.ai/v1", APIKeyEnv: "MISTRAL_API_KEY", AuthMethod: "bearer"},
	"ollama":     {Type: "openai", BaseURL: "http://127.0.0.1:11434/v1", AuthMethod: "none"},
	"openrouter": {Type: "openai", BaseURL: "https://openrouter.ai/api/v1", APIKeyEnv: "OPENROUTER_API_KEY", AuthMethod: "bearer"},
}

// AzureEndpoint is the environment variable with the address of the user's Azure
// resource, https://NAME.openai.azure.com.
const AzureEndpoint = "AZURE_OPENAI_ENDPOINT"

// vendor is the service known by name, with the address that the environment gives it.
func (c *Config) vendor(name string) Provider {
	v := vendors[name]
	endpoint := strings.TrimRight(c.env[AzureEndpoint], "/")
	if name != "azure" || endpoint == "" {
		return v
	}
	v.BaseURL = endpoint
	if address, err := url.Parse(endpoint); err == nil && !strings.Contains(address.Path, "/openai") { // it may have a query
		v.BaseURL = address.JoinPath("openai/v1").String()
	}
	return v
}

// completed is a provider of a file with what the file leaves out: from the vendor of
// its name, or else of its type. The key of a vendor is for the vendor's address alone.
func (c *Config) completed(name string, p Provider) Provider {
	v, known := vendors[name]
	family := strings.TrimSuffix(p.Type, "-responses") // it is offered at the same address
	if known = known && v.Type == family; !known {
		name = family
	}
	v = c.vendor(name)
	if known && (p.BaseURL == "" || vendors[name].BaseURL == "") && p.AuthMethod == "" {
		p.APIKeyEnv = cmp.Or(p.APIKeyEnv, v.APIKeyEnv)
	}
	p.BaseURL, p.AuthMethod = cmp.Or(p.BaseURL, v.BaseURL), cmp.Or(p.AuthMethod, v.AuthMethod)
	return p
}

// noAddress says that a provider is known by name, and has no address.
func noAddress(name string) error {
	return fmt.Errorf("provider %q has no address: set the environment variable %s, or base_url in config.json", name, AzureEndpoint)
}

// vendorOf is the vendor at a provider's address, by whatever name it is configured; "" if
// none is known there.
func vendorOf(p Provider) string {
	at, err := url.Parse(p.BaseURL)
	if err != nil || at.Host == "" {
		return ""
	}
	if strings.HasSuffix(at.Hostname(), ".openai.azure.com") {
		return "azure"
	}
	for name, v := range vendors {
		if known, err := url.Parse(v.BaseURL); err == nil && known.Host == at.Host {
			return name
		}
	}
	return ""
}
