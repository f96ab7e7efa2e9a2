package openai

import (
	"context"
	"errors"
	"iter"

	"nexus.internal/child/provider"
	"nexus.internal/child/provider/httpapi"
)

// responses is a provider for one service that speaks OpenAI's responses. Lists of models are as
// for chat completions.
type responses struct{ client }

// NewResponses returns a provider for a service that speaks OpenAI's responses. The service keeps
// nothing: each request has the whole conversation, and the reasoning as the service encrypted it.
// It opens no connection. The error says what is wrong with the options.
func NewResponses(o Options) (provider.Provider, error) {
	service, err := httpapi.New(o, httpapi.Vendor{})
	if err != nil {
		return nil, err
	}
	return &responses{client{service: service}}, nil
}

// Stream asks for one answer, as [httpapi.Service.Answer] does. Where the service refuses the
// reasoning of earlier ones, or a parameter, it is asked again at once, without.
func (c *responses) Stream(ctx context.Context, r provider.Request) iter.Seq2[provider.Delta, error] {
	offered, err := functionTools(r.Tools)
	if err != nil {
		return func(yield func(provider.Delta, error) bool) { yield(nil, c.service.Explain(err)) }
	}
	return c.service.Answer(ctx, r, func(ctx context.Context, t *httpapi.Attempt, r provider.Request) error {
		forget := false // the reasoning of earlier answers
		for {
			question, reasoned := toItems(r, forget)
			question.Tools = offered
			sent := question.parameters(r.Parameters, c.refused.By(r.Model))
			err := c.askItems(ctx, t, question)
			refused, ok := errors.AsType[*httpapi.ServiceError](err)
			switch {
			case !ok || t.Emitted():
				return err
			case reasoned && !forget && refused.RefusesReasoning():
				forget = true
			case c.refused.Learn(r.Model, refused, sent):
			default:
				return err
			}
		}
	})
}

// askItems makes one request and passes on its stream.
func (c *responses) askItems(ctx context.Context, t *httpapi.Attempt, question itemsRequest) error {
	a := itemsAnswer{Attempt: t, model: question.Model, items: map[uint64]*outputItem{}}
	err := t.Stream(ctx, "/responses", question, a.take)
	if err := t.Outcome(ctx, err, a.finished); err != nil {
		return err
	}
	a.end()
	return nil
}
