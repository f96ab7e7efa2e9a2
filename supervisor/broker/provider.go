package broker

import (
	"fmt"
	"net/url"
	"sync/atomic"

	"nexus.internal/protocol"
	"nexus.internal/protocol/redact"
)

// Provider says how to reach one service.
type Provider struct {
	// BaseURL is http or https; its query goes with every request.
	BaseURL string
	// Auth says how the key is sent.
	Auth Auth
	// Key is the key itself; "" with another Auth than None makes every
	// request fail with a message that names KeyName.
	Key string
	// KeyName is the environment variable that should hold the key.
	KeyName string
	// Prices are those of its models; nil if none is known.
	Prices Prices
}

// Prices tells what models cost. It is safe for concurrent use.
type Prices interface {
	// Price is that of a model by its id; ok is false where none is known.
	Price(model string) (p protocol.Price, ok bool)
}

// Auth says how a key is sent.
type Auth string

// The ways to send a key.
const (
	Bearer  Auth = "bearer"    // Authorization: Bearer KEY
	APIKey  Auth = "api-key"   // api-key: KEY, as Azure wants it
	XAPIKey Auth = "x-api-key" // x-api-key: KEY, as Anthropic wants it
	None    Auth = "none"      // no key
)

// service is a provider that is ready to be asked.
type service struct {
	name    string
	base    *url.URL
	auth    Auth
	key     string
	keyName string
	secrets redact.Secrets
	prices  Prices
	silent  atomic.Bool // it has not counted a stream whose request did not ask for that
}

// price is what a model costs; false if that is not known.
func (s *service) price(model string) (protocol.Price, bool) {
	if s.prices == nil || model == "" {
		return protocol.Price{}, false
	}
	return s.prices.Price(model)
}

// CheckProviders reports why a Broker would refuse providers; nil if it takes them.
func CheckProviders(providers map[string]Provider) error {
	_, err := newServices(providers)
	return err
}

func newServices(providers map[string]Provider) (map[string]*service, error) {
	services := make(map[string]*service, len(providers))
	for name, p := range providers {
		s, err := newService(name, p)
		if err != nil {
			return nil, err
		}
		services[name] = s
	}
	return services, nil
}

func newService(name string, p Provider) (*service, error) {
	base, err := url.Parse(p.BaseURL)
	if err != nil || base.Host == "" || base.Scheme != "http" && base.Scheme != "https" {
		return nil, fmt.Errorf("provider %s: base_url is no http or https URL", name) // err would show it
	}
	switch p.Auth {
	case Bearer, APIKey, XAPIKey, None:
	default:
		return nil, fmt.Errorf("provider %s: no such auth method: %q", name, string(p.Auth))
	}
	for _, c := range []byte(p.Key) {
		if c <= ' ' || c > '~' {
			return nil, fmt.Errorf("provider %s: the key in %s has a character that no header can hold", name, p.KeyName)
		}
	}
	s := &service{name: name, base: base, auth: p.Auth, key: p.Key, keyName: p.KeyName, prices: p.Prices}
	s.secrets = redact.New(s.key, base)
	return s, nil
}
