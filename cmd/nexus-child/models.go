package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"go.uber.org/zap"

	"nexus.internal/child"
	"nexus.internal/child/provider"
	"nexus.internal/cmd/internal/config"
	"nexus.internal/protocol"
)

// lookupTimeout bounds how long one provider is waited for when the models are
// listed. It is less than the child's bound for the whole list, so that one
// silent provider does not spoil it.
const lookupTimeout = 8 * time.Second

// offlineWindow is what the offline model counts as its context, in tokens.
const offlineWindow = child.DefaultContextWindow

// models gives out what the configuration names. Providers are made when they
// are first needed.
type models struct {
	current  *configuration
	scenario []byte       // for the offline provider; nil for its own rules
	broker   *http.Client // that has the keys; nil for none
	log      *zap.Logger

	mu     sync.Mutex // guards all below
	opened map[string]provider.Provider
	of     *config.Config // whose providers opened has
}

func (m *models) Select(model, current string) (child.Selected, error) {
	return m.choose(config.Wish{Model: model, Current: current})
}

func (m *models) choose(w config.Wish) (child.Selected, error) {
	c := m.current.now()
	choice, err := c.Choose(w)
	if err != nil {
		return child.Selected{}, err
	}
	p, err := m.provider(c, choice)
	if err != nil {
		return child.Selected{}, err
	}
	s := child.Selected{
		Provider: p, ProviderName: choice.Name, Model: choice.Model,
		ContextWindow: choice.Known.ContextWindow, Offline: choice.Provider.Type == "offline",
		MaxOutput: choice.Known.MaxOutput, NoReasoning: !protocol.ValueOr(choice.Known.Reasoning, true),
		NoTools: !protocol.ValueOr(choice.Known.Tools, true),
	}
	switch {
	case s.ContextWindow != 0:
	case s.Offline:
		s.ContextWindow = offlineWindow
	default:
		m.log.Info("the context window of the model is unknown, so it is taken for the default; models of config.json can say it",
			zap.String("model", choice.Name+"/"+choice.Model), zap.Int("context_window", child.DefaultContextWindow), zap.String("table_of_models", config.TableDate))
	}
	return s, nil
}

func (m *models) provider(c *config.Config, choice config.Choice) (provider.Provider, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.of != c {
		m.opened, m.of = map[string]provider.Provider{}, c
	}
	if p, ok := m.opened[choice.Name]; ok {
		return p, nil
	}
	p, err := m.open(c, choice)
	if err != nil {
		return nil, err
	}
	m.opened[choice.Name] = p
	return p, nil
}

func (m *models) Price(name string) (protocol.Price, bool) {
	service, model, _ := strings.Cut(name, "/")
	return m.current.now().Models.Price(service, model)
}

// maxOffered bounds what a list has of models that no configuration names, in bytes of
// JSON: the list is one frame.
const maxOffered = 512 << 10

// found is what is known of a provider's models.
type found struct {
	models []protocol.Model
	cut    bool   // a service named them, so there may be more than a list can have
	size   int    // of models, in bytes of JSON
	note   string // what models lacks; "" if nothing
}

// List implements [child.Models]: it gives what Select would take. All providers
// are asked at once. Where the configuration lists a provider's models it has
// these and no others, and the provider only tells more about them. One that
// does not answer within lookupTimeout, or not well, has what the configuration
// says; one without its key has none. The error is that of ctx.
func (m *models) List(ctx context.Context) (protocol.AvailableModels, error) {
	c := m.current.now()
	names := c.Models.Names()
	all := make([]found, len(names))
	var asked sync.WaitGroup
	for i, name := range names {
		asked.Go(func() { all[i] = m.offered(ctx, c, name) })
	}
	asked.Wait()
	m.share(names, all)
	answer := protocol.AvailableModels{Models: []protocol.Model{}}
	for i, f := range all {
		answer.Models = append(answer.Models, f.models...)
		if f.note != "" {
			answer.Notes = append(answer.Notes, names[i]+": "+f.note)
		}
	}
	return answer, ctx.Err()
}

// share cuts the lists of the providers to what fits into one. What those with few models do not need is
// for the others.
func (m *models) share(names []string, all []found) {
	var order []int
	for i := range all {
		if all[i].cut {
			order = append(order, i)
			for _, model := range all[i].models {
				all[i].size += encodedSize(model)
			}
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return all[a].size - all[b].size })
	room := maxOffered
	for n, i := range order {
		f := &all[i]
		share := room / (len(order) - n)
		room -= min(f.size, share)
		if f.size <= share {
			continue
		}
		kept := 0
		for ; kept < len(f.models); kept++ {
			if share -= encodedSize(f.models[kept]); share < 0 {
				break
			}
		}
		m.log.Warn("a provider has more models than a list", zap.String("provider", names[i]), zap.Int("models", len(f.models)), zap.Int("listed", kept))
		f.note = fmt.Sprintf("it has %d models, the first %d are listed; models of config.json can name others", len(f.models), kept)
		f.models = f.models[:kept]
	}
}

// encodedSize is how many bytes of JSON a model takes in a list.
func encodedSize(m protocol.Model) int {
	data, err := json.Marshal(m)
	if err != nil {
		return maxOffered // it cannot be told
	}
	return len(data) + len(",")
}

// offered are the models of one provider under its name: those of the configuration, or else
// those that the service names.
func (m *models) offered(ctx context.Context, c *config.Config, name string) (f found) {
	settings, err := c.Models.Provider(name)
	if err != nil {
		return found{}
	}
	p, err := m.provider(c, config.Choice{Name: name, Provider: settings})
	if err != nil {
		return found{} // what cannot be opened, for want of a key perhaps, cannot be chosen
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	offered, err := p.Models(ctx)
	if err != nil {
		level := zap.DebugLevel // nobody may use one that is only known by name
		if c.Models.Defined(name) {
			level = zap.WarnLevel
			f.note = "its models are not known: " + strings.TrimPrefix(provider.Brief(err), "provider "+name+": ")
			if errors.Is(err, context.DeadlineExceeded) {
				f.note = fmt.Sprintf("its models are not known: no answer within %v", lookupTimeout)
			}
		}
		m.log.Log(level, "models of a provider are not known", zap.String("error", provider.Brief(err)))
	}
	known := listed(name, settings)
	for i := range known {
		at := slices.IndexFunc(offered, func(o protocol.Model) bool { return o.ModelID == known[i].ModelID })
		if at < 0 {
			continue
		}
		if known[i].ModelName == known[i].ModelID {
			known[i].ModelName = cmp.Or(offered[at].ModelName, known[i].ModelName)
		}
		known[i].ContextWindow = cmp.Or(known[i].ContextWindow, offered[at].ContextWindow)
	}
	if len(known) > 0 {
		return found{models: known}
	}
	for i, o := range offered {
		facts := settings.Known(o.ModelID)
		facts.Name, facts.ContextWindow = o.ModelName, cmp.Or(o.ContextWindow, facts.ContextWindow)
		offered[i] = described(name, facts)
	}
	f.models, f.cut = offered, true
	return f
}

// listed are the models that the configuration gives a provider.
func listed(name string, p config.Provider) []protocol.Model {
	var all []protocol.Model
	for _, m := range p.Models {
		all = append(all, described(name, p.Known(m.ID)))
	}
	return all
}

// described is what is known of a model, for a list.
func described(provider string, m config.Model) protocol.Model {
	return protocol.Model{
		Provider: provider, ModelID: m.ID, ModelName: cmp.Or(m.Name, m.ID), ContextWindow: m.ContextWindow, MaxOutput: m.MaxOutput,
		Price: m.Price, Images: m.Images, Tools: m.Tools, Reasoning: m.Reasoning,
	}
}
