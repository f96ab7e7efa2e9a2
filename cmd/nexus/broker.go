package main

import (
	"cmp"
	"math"

	"go.uber.org/zap"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/sessions"
	"nexus.internal/cmd/internal/config"
	"nexus.internal/supervisor/broker"
)

// newBroker makes the broker that has the keys of the providers.
func newBroker(cfg *config.Config, catalogue *sessions.Catalogue, log *zap.Logger) (*broker.Broker, error) {
	if err := broker.Protect(); err != nil {
		return nil, err
	}
	return broker.New(broker.Options{
		Providers: brokered(cfg),
		Limits:    limitsOf(cfg),
		File:      catalogue.UsagePath,
		Dir:       cfg.Env("XDG_RUNTIME_DIR"),
		Log:       log,
	})
}

// brokered are the providers that are somewhere else, with their keys.
func brokered(cfg *config.Config) map[string]broker.Provider {
	providers := map[string]broker.Provider{}
	for _, name := range cfg.ProviderNames() {
		p, err := cfg.Provider(name)
		if err != nil || p.Type == "offline" {
			continue
		}
		base, auth := "https://api.openai.com/v1", broker.Bearer
		if p.Type == "anthropic" {
			base, auth = "https://api.anthropic.com", broker.XAPIKey
		}
		key, _ := cfg.Key(config.Choice{Name: name, Provider: p}) // who asks is told that there is none
		providers[name] = broker.Provider{
			BaseURL: cmp.Or(p.BaseURL, base), Auth: cmp.Or(broker.Auth(p.AuthMethod), auth), Key: key, KeyName: p.APIKeyEnv,
		}
	}
	return providers
}

func limitsOf(cfg *config.Config) broker.Limits {
	l := cfg.Limits()
	return broker.Limits{
		Tokens: l.Tokens, RequestsPerMinute: bounded(l.RequestsPerMinute),
		TokensPerMinute: bounded(l.TokensPerMinute), Concurrent: bounded(l.Concurrent),
	}
}

// limits are those that an agent is made with, over the default ones; nil if
// nothing was said.
func (s *specs) limits(asked *api.Limits) *broker.Limits {
	if asked == nil {
		return nil
	}
	l := s.standard
	if asked.Tokens != nil {
		l.Tokens = *asked.Tokens
	}
	if asked.RequestsPerMinute != nil {
		l.RequestsPerMinute = bounded(*asked.RequestsPerMinute)
	}
	if asked.TokensPerMinute != nil {
		l.TokensPerMinute = bounded(*asked.TokensPerMinute)
	}
	return &l
}

// bounded makes a limit an int; one that is cut is none that anybody reaches.
func bounded(n uint64) int { return int(min(n, math.MaxInt32)) }
