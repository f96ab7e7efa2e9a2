package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"

	"nexus.internal/child/provider"
	"nexus.internal/child/provider/anthropic"
	"nexus.internal/child/provider/httpapi"
	"nexus.internal/child/provider/openai"
	"nexus.internal/child/provider/scripted"
	"nexus.internal/cmd/internal/config"
	"nexus.internal/protocol/safefile"
)

// open makes the provider of a choice. Where there is a broker all is asked
// through it, and c has no provider of a project's (config.LoadServed): an agent
// could write itself one that nobody counts.
func (m *models) open(c *config.Config, choice config.Choice) (provider.Provider, error) {
	p := choice.Provider
	if p.Type == "offline" {
		o := scripted.Options{Scenario: m.scenario}
		for _, model := range p.Models {
			o.Models = append(o.Models, model.ID)
		}
		return scripted.New(o)
	}
	o := httpapi.Options{
		Name: choice.Name, BaseURL: p.BaseURL, AuthMethod: httpapi.AuthMethod(p.AuthMethod), Models: listed(choice.Name, p),
	}
	if m.broker != nil {
		o.BaseURL, o.AuthMethod, o.HTTPClient = "http://broker/"+url.PathEscape(choice.Name), httpapi.None, m.broker
		o.Broker = true
	} else {
		var err error
		if o.APIKey, err = c.Key(choice); err != nil {
			return nil, err
		}
	}
	switch p.Type {
	case "anthropic":
		return anthropic.New(anthropic.Options{Options: o, MaxTokens: p.MaxTokens, Thinking: anthropic.Thinking(p.Thinking)})
	case "openai":
		return openai.New(o)
	case "openai-responses":
		return openai.NewResponses(o)
	default:
		return nil, fmt.Errorf("provider %s: this program has no provider of type %q", choice.Name, p.Type)
	}
}

// brokerClient reaches the broker by its socket; nil without one. It asks for
// one answer at a time and a list of models perhaps.
func brokerClient(socket string) *http.Client {
	if socket == "" {
		return nil
	}
	return &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (conn net.Conn, err error) {
			err = safefile.SocketPath(socket, func(short string) error {
				conn, err = (&net.Dialer{}).DialContext(ctx, "unix", short)
				return err
			})
			return conn, err
		},
		DisableCompression: true, // it is one machine
		MaxIdleConns:       2,
		IdleConnTimeout:    30 * time.Second,
	}}
}
