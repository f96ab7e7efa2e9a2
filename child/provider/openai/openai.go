package openai

import (
	"net/http"
	"time"

	"nexus.internal/child/provider"
)

// AuthMethod says how the key is sent.
type AuthMethod string

// The methods of config.json.
const (
	Bearer AuthMethod = "bearer"  // Authorization: Bearer KEY
	APIKey AuthMethod = "api-key" // api-key: KEY, as Azure wants it
	None   AuthMethod = "none"    // no key at all
)

// Options says which service is spoken to and how.
type Options struct {
	Name         string           // of the provider in config.json, for messages and Model.Provider
	BaseURL      string           // default https://api.openai.com/v1
	APIKey       string           // the key itself; it appears in no error
	AuthMethod   AuthMethod       // default Bearer
	Models       []provider.Model // what Models answers where the service does not say
	HTTPClient   *http.Client     // default: one of our own, which reads the proxy variables
	IdleTimeout  time.Duration    // longest silence within a stream; default 120 s
	MaxAttempts  int              // tries for one answer, the first included; default 4
	RetryBackoff time.Duration    // wait before the second try, doubled for each one after it; default 500 ms
}

// New returns a provider for a service that speaks OpenAI's chat completions.
func New(o Options) (provider.Provider, error) { return nil, nil }
