package main

import (
	"context"
	"errors"
	"sync"

	"nexus.internal/child"
	"nexus.internal/child/provider"
	"nexus.internal/child/provider/openai"
	"nexus.internal/child/provider/scripted"
	"nexus.internal/cmd/internal/config"
)

// offlineWindow is what the offline model counts as its context, in tokens.
const offlineWindow = child.DefaultContextWindow

// models gives out what the configuration names. Providers are made when they
// are first needed.
type models struct {
	config   *config.Config
	scenario []byte // for the offline provider; nil for its own rules

	mu   sync.Mutex // guards open
	open map[string]provider.Provider
}

// Select implements [child.Models].
func (m *models) Select(model, current string) (child.Selected, error) {
	return m.choose(config.Wish{Model: model, Current: current})
}

func (m *models) choose(w config.Wish) (child.Selected, error) {
	choice, err := m.config.Choose(w)
	if err != nil {
		return child.Selected{}, err
	}
	p, err := m.provider(choice)
	if err != nil {
		return child.Selected{}, err
	}
	s := child.Selected{
		Provider: p, ProviderName: choice.Name, Model: choice.Model,
		ContextWindow: choice.ContextWindow, Offline: choice.Provider.Type == "offline",
	}
	if s.Offline && s.ContextWindow == 0 {
		s.ContextWindow = offlineWindow
	}
	return s, nil
}

func (m *models) provider(choice config.Choice) (provider.Provider, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p, ok := m.open[choice.Name]; ok {
		return p, nil
	}
	key, err := m.config.Key(choice)
	if err != nil {
		return nil, err
	}
	var p provider.Provider
	if choice.Provider.Type == "offline" {
		p, err = scripted.New(scripted.Options{Scenario: m.scenario})
	} else {
		p, err = openai.New(openai.Options{
			Name: choice.Name, BaseURL: choice.Provider.BaseURL, APIKey: key,
			AuthMethod: openai.AuthMethod(choice.Provider.AuthMethod), Models: listed(choice.Name, choice.Provider),
		})
	}
	if err != nil {
		return nil, err
	}
	m.open[choice.Name] = p
	return p, nil
}

// List implements [child.Models]. A provider without its key has no models,
// and one that does not answer has those that the configuration lists.
func (m *models) List(ctx context.Context) ([]provider.Model, error) {
	var all []provider.Model
	for _, name := range m.config.ProviderNames() {
		settings, err := m.config.Provider(name)
		if err != nil {
			return nil, err
		}
		p, err := m.provider(config.Choice{Name: name, Provider: settings})
		if _, missing := errors.AsType[*config.MissingKeyError](err); missing {
			continue
		}
		if err != nil {
			return nil, err
		}
		found := listed(name, settings)
		if len(found) == 0 {
			if found, err = p.Models(ctx); err != nil {
				found = nil
			}
		}
		for _, model := range found {
			model.Provider = name
			all = append(all, model)
		}
	}
	return all, ctx.Err()
}

// listed are the models that the configuration gives a provider.
func listed(name string, p config.Provider) []provider.Model {
	var all []provider.Model
	for _, m := range p.Models {
		if m.Name == "" {
			m.Name = m.ID
		}
		all = append(all, provider.Model{Provider: name, ModelID: m.ID, ModelName: m.Name, ContextWindow: m.ContextWindow})
	}
	return all
}
