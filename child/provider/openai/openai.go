package openai

import (
	"cmp"
	"context"
	"errors"
	"iter"

	"nexus.internal/child/provider"
	"nexus.internal/child/provider/httpapi"
	"nexus.internal/protocol"
)

// Options says which service is spoken to and how.
type Options = httpapi.Options

// client is a provider for one service.
type client struct {
	service *httpapi.Service
	refused httpapi.Refused
}

// New returns a provider for a service that speaks OpenAI's chat completions.
// It opens no connection. The error says what is wrong with the options.
func New(o Options) (provider.Provider, error) {
	service, err := httpapi.New(o, httpapi.Vendor{})
	if err != nil {
		return nil, err
	}
	return &client{service: service}, nil
}

// Stream asks for one answer, as [httpapi.Service.Answer] does. Where the service
// refuses the reasoning of earlier ones, or a parameter, it is asked again at once, without.
func (c *client) Stream(ctx context.Context, r provider.Request) iter.Seq2[provider.Delta, error] {
	offered, err := tools(r.Tools)
	if err != nil {
		return func(yield func(provider.Delta, error) bool) { yield(nil, c.service.Explain(err)) }
	}
	return c.service.Answer(ctx, r, func(ctx context.Context, t *httpapi.Attempt, r provider.Request) error {
		forget := false // the reasoning of earlier answers
		for {
			question, reasoned := translate(r, forget)
			question.Tools = offered
			sent := question.parameters(r.Parameters, c.refused.By(r.Model))
			err := c.ask(ctx, t, question)
			refused, ok := errors.AsType[*httpapi.ServiceError](err)
			switch {
			case !ok || t.Emitted():
				return err
			case c.refused.Learn(r.Model, refused, sent):
			case reasoned && !forget && refused.RefusesReasoning():
				forget = true
			default:
				return err
			}
		}
	})
}

// Models lists what the service offers, as [httpapi.Service.Models] does.
func (c *client) Models(ctx context.Context) ([]protocol.Model, error) {
	return c.service.Models(ctx, func(ctx context.Context) ([]protocol.Model, error) {
		var list modelList
		if err := c.service.Get(ctx, "/models", nil, &list); err != nil {
			return nil, err
		}
		found := make([]protocol.Model, 0, len(list.Data))
		for _, m := range list.Data {
			found = append(found, protocol.Model{
				ModelID: m.ID, ModelName: m.Name,
				ContextWindow: cmp.Or(m.ContextLength, m.MaxModelLen, m.ContextWindow, m.MaxLength, m.trained()),
			})
		}
		return found, nil
	})
}
