package openai

import (
	"context"
	"errors"
	"iter"

	sdk "github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/tidwall/gjson"

	"nexus.internal/child/provider"
	"nexus.internal/child/provider/wire"
)

// Options says which service is spoken to and how. The defaults are the name
// "openai", https://api.openai.com/v1 and Bearer.
type Options = wire.Options

// AuthMethod says how the key is sent.
type AuthMethod = wire.AuthMethod

// The methods of config.json.
const (
	Bearer = wire.Bearer
	APIKey = wire.APIKey
	None   = wire.None
)

// client is a provider for one service.
type client struct {
	service     *wire.Service
	completions sdk.ChatCompletionService
	models      sdk.ModelService
}

// New returns a provider for a service that speaks OpenAI's chat completions.
// It opens no connection. The error says what is wrong with the options.
func New(o Options) (provider.Provider, error) {
	service, err := wire.New(o, wire.Defaults{Name: "openai", BaseURL: "https://api.openai.com/v1", Auth: wire.Bearer})
	if err != nil {
		return nil, err
	}
	request := []option.RequestOption{
		option.WithBaseURL(service.BaseURL()),
		option.WithHTTPClient(service),
		option.WithMaxRetries(0), // retries are ours, because they are told to whoever listens
	}
	return &client{
		service:     service,
		completions: sdk.NewChatCompletionService(request...),
		models:      sdk.NewModelService(request...),
	}, nil
}

// Stream asks for one answer, as [wire.Service.Answer] does. Where the service
// refuses the reasoning of earlier ones, it is asked once more at once, without.
func (c *client) Stream(ctx context.Context, r provider.Request) iter.Seq2[provider.Delta, error] {
	offered, err := tools(r.Tools)
	if err != nil {
		return func(yield func(provider.Delta, error) bool) { yield(nil, c.service.Explain(err)) }
	}
	return c.service.Answer(ctx, r, func(ctx context.Context, t *wire.Try, r provider.Request) error {
		for forget := false; ; forget = true {
			params, reasoned := translate(r, forget)
			params.Tools = offered
			err := c.ask(ctx, t, params)
			refused, ok := errors.AsType[*wire.ServiceError](err)
			if !ok || t.Spoke() || !reasoned || !refused.RefusesReasoning() {
				return err
			}
		}
	})
}

// Models lists what the service offers, as [wire.Service.Models] does.
func (c *client) Models(ctx context.Context) ([]provider.Model, error) {
	return c.service.Models(ctx, func(ctx context.Context) ([]provider.Model, error) {
		page, err := c.models.List(ctx)
		if err != nil {
			return nil, err
		}
		found := make([]provider.Model, 0, len(page.Data))
		for _, m := range page.Data {
			found = append(found, described(m))
		}
		return found, nil
	})
}

// described reads what compatible services say of a model beyond its id:
// OpenRouter a name and context_length, vLLM max_model_len, llama.cpp what it
// was trained with.
func described(m sdk.Model) provider.Model {
	raw := m.RawJSON()
	entry := provider.Model{ModelID: m.ID}
	if name := gjson.Get(raw, "name"); name.Type == gjson.String {
		entry.ModelName = name.Str
	}
	for _, member := range []string{"context_length", "max_model_len", "context_window", "max_context_length", "meta.n_ctx_train"} {
		if size := gjson.Get(raw, member); size.Type == gjson.Number && size.Num > 0 {
			entry.ContextWindow = size.Uint()
			break
		}
	}
	return entry
}
