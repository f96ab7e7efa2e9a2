package main

import (
	"fmt"
	"path/filepath"

	"go.uber.org/zap"

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
		if err != nil || p.BaseURL == "" { // offline, or without an address yet
			continue
		}
		key, _ := cfg.Key(config.Choice{Name: name, Provider: p}) // who asks is told that there is none
		providers[name] = broker.Provider{BaseURL: p.BaseURL, Auth: broker.Auth(p.AuthMethod), Key: key, KeyName: p.APIKeyEnv, Prices: p}
	}
	return providers
}
