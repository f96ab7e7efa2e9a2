package main

import (
	"context"
	"net"
	"net/http"
	"net/url"
	"time"

	"nexus.internal/child/provider"
	"nexus.internal/child/provider/anthropic"
	"nexus.internal/child/provider/openai"
	"nexus.internal/child/provider/scripted"
	"nexus.internal/child/provider/wire"
	"nexus.internal/cmd/internal/config"
)

// open makes the provider of a choice. Where there is a broker it has the keys:
// what it knows is asked through it, and only what a project's file says of
// itself, which is never sent a key, is asked directly.
func (m *models) open(choice config.Choice) (provider.Provider, error) {
	p := choice.Provider
	if p.Type == "offline" {
		o := scripted.Options{Scenario: m.scenario}
		for _, model := range p.Models {
			o.Models = append(o.Models, model.ID)
		}
		return scripted.New(o)
	}
	o := wire.Options{
		Name: choice.Name, BaseURL: p.BaseURL, AuthMethod: wire.AuthMethod(p.AuthMethod), Models: listed(choice.Name, p),
	}
	if m.broker != nil && !m.config.FromProject(choice.Name) {
		o.BaseURL, o.AuthMethod, o.HTTPClient = "http://broker/"+url.PathEscape(choice.Name), wire.None, m.broker
	} else {
		var err error
		if o.APIKey, err = m.config.Key(choice); err != nil {
			return nil, err
		}
	}
	if p.Type == "anthropic" {
		return anthropic.New(anthropic.Options{Options: o, MaxTokens: p.MaxTokens, Thinking: anthropic.Thinking(p.Thinking)})
	}
	return openai.New(o)
}

// brokerClient reaches the broker by its socket; nil without one. It asks for
// one answer at a time and a list of models perhaps.
func brokerClient(socket string) *http.Client {
	if socket == "" {
		return nil
	}
	return &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		},
		DisableCompression: true, // it is one machine
		MaxIdleConns:       2,
		IdleConnTimeout:    30 * time.Second,
	}}
}
