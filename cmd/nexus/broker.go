package main

import (
	"fmt"
	"path/filepath"

	"go.uber.org/zap"

	"nexus.internal/bridge/metrics"
	"nexus.internal/cmd/internal/config"
	"nexus.internal/protocol/proctree"
	"nexus.internal/protocol/tracing"
	"nexus.internal/supervisor/broker"
)

// newBroker makes the broker that has the keys of the providers.
func newBroker(s *settings, accounts broker.Accounts, trace tracing.Start, log *zap.Logger) (*broker.Broker, error) {
	if err := proctree.SetUndumpable(); err != nil {
		return nil, fmt.Errorf("protect the keys: %w", err)
	}
	// Where agents reach neither: a home may lie on a disk that takes no sockets.
	dirs := []string{s.cfg.Home.SocketsDir()}
	if runtime := s.cfg.Env("XDG_RUNTIME_DIR"); runtime != "" {
		dirs = append(dirs, filepath.Join(runtime, "nexus-sockets"))
	}
	return broker.New(broker.Options{
		Providers: s.providers,
		Limits:    s.limits,
		Accounts:  accounts,
		Dirs:      dirs,
		Trace:     trace,
		Log:       log,
	})
}

// brokerProviders are the providers that are somewhere else, with their keys.
func brokerProviders(cfg *config.Config) map[string]broker.Provider {
	providers := map[string]broker.Provider{}
	for _, name := range cfg.Models.Names() {
		p, err := cfg.Models.Provider(name)
		if err != nil || p.Type == "offline" {
			continue
		}
		key, _ := cfg.Key(config.Choice{Name: name, Provider: p}) // who asks is told that there is none
		providers[name] = broker.Provider{BaseURL: p.BaseURL, Auth: broker.Auth(p.AuthMethod), Key: key, KeyName: p.APIKeyEnv}
	}
	return providers
}

// modelMetrics is what the broker counted, for the metrics.
func modelMetrics(s broker.Stats) metrics.Models {
	m := metrics.Models{Running: s.Running}
	for name, t := range s.Providers {
		m.Services = append(m.Services, metrics.Service{
			Provider: name,
			Requests: map[string]uint64{
				"answered": t.Answered, "failed": t.Failed, "unreachable": t.Unreachable, "abandoned": t.Abandoned, "refused": t.Refused,
			},
			Tokens: map[string]uint64{
				"input": t.Used.Input, "output": t.Used.Output, "cache_read": t.Used.CacheRead, "cache_creation": t.Used.CacheCreation,
			},
			Estimated: t.Used.Estimated,
		})
	}
	return m
}
