package config

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"nexus.internal/protocol"
	"nexus.internal/protocol/suggest"
)

// Wish is what somebody asked for; "" leaves it to the configuration.
type Wish struct {
	Provider string
	// Model is a model id, or PROVIDER/ID.
	Model string
	// Current is the provider that an id alone refers to, unless only another
	// one's list has it; "" means the default provider.
	Current string
	// Scenario says that a scenario is played: the provider is the offline one if Provider
	// is "".
	Scenario bool
}

// Choice is one model of one provider.
type Choice struct {
	Name     string // of the provider
	Provider Provider
	Model    string // the id, without the provider's name
	Known    Model  // what is known of it
}

// MissingKeyError says which environment variable should hold a key.
type MissingKeyError struct {
	Provider string
	Env      string
}

func (e *MissingKeyError) Error() string {
	if e.Env == "" {
		return fmt.Sprintf(`provider %q needs a key: name its environment variable as api_key_env in config.json, or set auth_method to "none"`, e.Provider)
	}
	return fmt.Sprintf("provider %q needs a key: set the environment variable %s", e.Provider, e.Env)
}

// UnknownModelError says that a provider's list of models lacks the one asked
// for.
type UnknownModelError struct {
	Provider string
	Model    string
	Known    []string
}

func (e *UnknownModelError) Error() string {
	return fmt.Sprintf("unknown model %q of provider %q (it has: %s)", e.Model, e.Provider, strings.Join(e.Known, ", ")) +
		perhaps(suggest.Nearest(e.Model, e.Known))
}

// UnknownProviderError says that there is no provider of that name.
type UnknownProviderError struct {
	Provider string
	Model    string // the model that was asked for as Provider/…; "" if the provider was named by itself
	Known    []string
}

func (e *UnknownProviderError) Error() string {
	of := ""
	if e.Model != "" {
		of = fmt.Sprintf(" of model %q", e.Model)
	}
	return fmt.Sprintf("unknown provider %q%s (there are: %s)", e.Provider, of, list(e.Known)) + perhaps(e.nearest())
}

// nearest is what was probably meant in the place of the model, or of the provider where
// it was named by itself; "" for nothing near.
func (e *UnknownProviderError) nearest() string {
	near := suggest.Nearest(e.Provider, e.Known)
	if near == "" {
		return ""
	}
	return near + strings.TrimPrefix(e.Model, e.Provider)
}

func perhaps(near string) string {
	if near == "" {
		return ""
	}
	return fmt.Sprintf("; did you mean %q?", near)
}

// Profile finds the profile of that name.
func (c *Config) Profile(name string) (Profile, error) {
	p, ok := c.Profiles[name]
	if !ok {
		return Profile{}, fmt.Errorf("unknown profile %q (there are: %s)", name, list(slices.Sorted(maps.Keys(c.Profiles))))
	}
	return p, nil
}

// Models are the providers of models, and which is meant where none is named.
type Models struct {
	providers       map[string]Provider
	defined         map[string]bool // those that a file defines
	defaultModel    string
	defaultProvider string
}

// Names lists the providers that could be chosen, sorted.
func (m Models) Names() []string { return slices.Sorted(maps.Keys(m.providers)) }

// Defined reports whether a file defines the provider, by itself or in the place of one
// that is known by name.
func (m Models) Defined(name string) bool { return m.defined[name] }

// Provider finds the provider of that name. The error is an *UnknownProviderError.
func (m Models) Provider(name string) (Provider, error) {
	p, ok := m.providers[name]
	if !ok {
		return Provider{}, &UnknownProviderError{Provider: name, Known: m.Names()}
	}
	return p, nil
}

// Choose settles on a model. The provider is, in this order: the one wished
// for, the name before the first slash of the model if it is a provider's, the
// one whose list has the model, the current one. The error is an
// *UnknownModelError where a list of models lacks the one asked for, and an
// *UnknownProviderError where there is no such provider. A name
// that protocol.CheckModelName refuses is none that can be chosen.
func (m Models) Choose(w Wish) (Choice, error) {
	if err := checkName("provider", w.Provider); err != nil {
		return Choice{}, err
	}
	named := w.Provider != ""
	if w.Scenario {
		w.Provider = cmp.Or(w.Provider, "offline")
	}
	model := w.Model
	if w.Current == "" {
		w.Current = m.fallback()
	}
	if model == "" && (w.Provider == "" || m.defaultsTo(w.Provider)) {
		model = m.defaultModel
	}
	name := w.Provider
	if prefix, rest, ok := strings.Cut(model, "/"); ok && (name == "" || name == prefix) {
		if _, known := m.providers[prefix]; known {
			name, model = prefix, rest
		}
	}
	if err := checkName("model", model); err != nil {
		return Choice{}, err
	}
	if name == "" {
		name = m.providerOf(model, w.Current)
	}
	p, err := m.Provider(name)
	if err != nil {
		return Choice{}, err
	}
	choice, err := p.pick(name, model)
	if _, listed := errors.AsType[*UnknownModelError](err); listed && !named && model == w.Model {
		prefix, _, ok := strings.Cut(model, "/")
		if _, known := m.providers[prefix]; ok && prefix != "" && !known && !m.lists(prefix+"/") {
			return Choice{}, &UnknownProviderError{Provider: prefix, Model: model, Known: m.Names()}
		}
	}
	return choice, err
}

// lists reports whether a list of models has an id that begins so: what stands before its
// slash is part of the id then, as aggregators have it.
func (m Models) lists(prefix string) bool {
	for _, p := range m.providers {
		if slices.ContainsFunc(p.Models, func(one Model) bool { return strings.HasPrefix(one.ID, prefix) }) {
			return true
		}
	}
	return false
}

// checkName refuses a name that is no name; "" is no wish.
func checkName(of, name string) error {
	if name == "" {
		return nil
	}
	if err := protocol.CheckModelName(name); err != nil {
		return fmt.Errorf("%s: %w", of, err)
	}
	return nil
}

func (m Models) defaultsTo(provider string) bool {
	if prefix, _, ok := strings.Cut(m.defaultModel, "/"); ok {
		if _, known := m.providers[prefix]; known {
			return prefix == provider
		}
	}
	return m.defaultModel != "" && m.providerOf(m.defaultModel, m.fallback()) == provider
}

// providerOf finds the provider whose list has the model, the current one
// first; failing that, it is the current one.
func (m Models) providerOf(model, current string) string {
	names := append([]string{current}, m.Names()...)
	for _, name := range names {
		if slices.ContainsFunc(m.providers[name].known(), func(one Model) bool { return one.ID == model }) {
			return name
		}
	}
	return names[0]
}

func (m Models) fallback() string {
	if m.defaultProvider != "" {
		return m.defaultProvider
	}
	if prefix, _, ok := strings.Cut(m.defaultModel, "/"); ok {
		if _, known := m.providers[prefix]; known {
			return prefix
		}
	}
	own := slices.DeleteFunc(m.Names(), func(name string) bool {
		return !m.defined[name] || name == "offline" || name == "openai" || name == "anthropic"
	})
	if len(own) == 1 && m.defaultModel != "" {
		return own[0]
	}
	return "offline"
}

// Known is what the configuration says of a model, and the table of models where it says
// nothing.
func (p Provider) Known(id string) Model {
	m, _ := published(p, id)
	if i := slices.IndexFunc(p.Models, func(one Model) bool { return one.ID == id }); i >= 0 {
		own := p.Models[i]
		m.Name, m.ContextWindow, m.MaxOutput = own.Name, cmp.Or(own.ContextWindow, m.ContextWindow), cmp.Or(own.MaxOutput, m.MaxOutput)
		m.Price, m.Images = cmp.Or(own.Price, m.Price), cmp.Or(own.Images, m.Images)
		m.Tools, m.Reasoning = cmp.Or(own.Tools, m.Tools), cmp.Or(own.Reasoning, m.Reasoning)
	}
	m.ID = id
	return m
}

// Price is that of a model of a provider; ok is false where none is known. The offline
// model costs nothing.
func (m Models) Price(name, model string) (price protocol.Price, ok bool) {
	p, err := m.Provider(name)
	if err != nil {
		return protocol.Price{}, false
	}
	return p.Price(model)
}

// Price is that of a model; ok is false where none is known. The offline model costs
// nothing.
func (p Provider) Price(model string) (price protocol.Price, ok bool) {
	known := p.Known(model).Price
	return protocol.Value(known), known != nil || p.Type == "offline"
}

func (p Provider) known() []Model {
	if p.Type == "offline" && len(p.Models) == 0 {
		return []Model{{ID: "offline"}}
	}
	return p.Models
}

func (p Provider) pick(name, model string) (Choice, error) {
	if p.Type != "offline" && p.BaseURL == "" {
		return Choice{}, noAddress(name)
	}
	known := p.known()
	if model == "" {
		if len(known) == 0 {
			return Choice{}, fmt.Errorf("provider %q has no default model: choose a model, or set default_model in config.json", name)
		}
		model = known[0].ID
	}
	choice := Choice{Name: name, Provider: p, Model: model, Known: p.Known(model)}
	if len(known) > 0 && !slices.ContainsFunc(known, func(one Model) bool { return one.ID == model }) {
		err := &UnknownModelError{Provider: name, Model: model}
		for _, m := range known {
			err.Known = append(err.Known, m.ID)
		}
		return Choice{}, err
	}
	return choice, nil
}

// Key is the key of a choice's provider; "" where it needs none. The error is
// a *MissingKeyError.
func (c *Config) Key(choice Choice) (string, error) {
	p := choice.Provider
	if p.Type == "offline" || p.AuthMethod == "none" {
		return "", nil
	}
	key := c.env[p.APIKeyEnv]
	if p.APIKeyEnv == "" || key == "" {
		return "", &MissingKeyError{Provider: choice.Name, Env: p.APIKeyEnv}
	}
	return key, nil
}

// KeyNames lists the environment variables that hold keys, sorted, so that they
// can be taken out of the environment of everything that is started from here.
func (c *Config) KeyNames() []string { return slices.Sorted(maps.Keys(c.keyNames)) }

func list(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}
