package anthropic

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"sync"

	"nexus.internal/child/provider"
	"nexus.internal/child/provider/httpapi"
	"nexus.internal/protocol"
)

const (
	// DefaultMaxTokens is what every model since Claude 4 can say at once.
	DefaultMaxTokens = 32_000
	// DefaultThinkingTokens is how much of that ThinkingEnabled spends.
	DefaultThinkingTokens = 8_000
	minThinkingTokens     = 1024 // the service takes no less
	modelPage             = 1000 // the most models that one request lists
)

// Thinking says whether a model reasons before it answers.
type Thinking string

// The ways to think.
const (
	ThinkingDefault  Thinking = ""         // as the model does when it is not told
	ThinkingAdaptive Thinking = "adaptive" // the model decides; since Claude 4.6
	ThinkingEnabled  Thinking = "enabled"  // for up to ThinkingTokens; models before that
	ThinkingDisabled Thinking = "disabled" // not at all
)

// Options says which service is spoken to and how. A /v1 at the end of BaseURL
// makes no difference.
type Options struct {
	httpapi.Options
	// MaxTokens bounds one answer, its reasoning included; default
	// DefaultMaxTokens. A model that takes less gets less.
	MaxTokens int
	Thinking  Thinking
	// ThinkingTokens is the budget of ThinkingEnabled, at least 1024 and less
	// than MaxTokens; default DefaultThinkingTokens.
	ThinkingTokens int
}

// client is a provider for one service.
type client struct {
	service *httpapi.Service
	options Options
	refused httpapi.Refused

	mu     sync.Mutex     // guards limits
	limits map[string]int // what a model said is the most it takes for max_tokens
}

// New returns a provider for a service that speaks Anthropic's messages. It
// opens no connection. The error says what is wrong with the options.
func New(o Options) (provider.Provider, error) {
	service, err := httpapi.New(o.Options, httpapi.Vendor{Version: "/v1", Header: http.Header{"Anthropic-Version": {"2023-06-01"}}})
	if err != nil {
		return nil, err
	}
	o.MaxTokens = cmp.Or(o.MaxTokens, DefaultMaxTokens)
	if o.MaxTokens < 0 {
		return nil, service.Explain(fmt.Errorf("an answer cannot have %d tokens", o.MaxTokens))
	}
	switch o.Thinking {
	case ThinkingDefault, ThinkingAdaptive, ThinkingDisabled:
	case ThinkingEnabled:
		o.ThinkingTokens = cmp.Or(o.ThinkingTokens, DefaultThinkingTokens)
		if o.ThinkingTokens < minThinkingTokens || o.ThinkingTokens >= o.MaxTokens {
			return nil, service.Explain(fmt.Errorf("%d tokens of thinking are not between %d and the %d of an answer",
				o.ThinkingTokens, minThinkingTokens, o.MaxTokens))
		}
	default:
		return nil, service.Explain(fmt.Errorf("thinking %q is not known, want adaptive, enabled or disabled", string(o.Thinking)))
	}
	return &client{service: service, options: o, limits: map[string]int{}}, nil
}

// Stream asks for one answer, as [httpapi.Service.Answer] does. Where the service
// refuses the bound of the answer or the reasoning of earlier ones, it is asked
// again at once, with what it takes.
func (c *client) Stream(ctx context.Context, r provider.Request) iter.Seq2[provider.Delta, error] {
	offered, err := tools(r.Tools)
	if err != nil {
		return func(yield func(provider.Delta, error) bool) { yield(nil, c.service.Explain(err)) }
	}
	return c.service.Answer(ctx, r, func(ctx context.Context, t *httpapi.Attempt, r provider.Request) error {
		forget := false // the reasoning of earlier answers
		for {
			d := draft{Request: r, maxTokens: c.limit(r), forget: forget, used: map[string]bool{}}
			question := d.request(c.options)
			question.Tools = offered
			sent := question.parameters(r, c.refused.By(r.Model))
			err := c.ask(ctx, t, question)
			refused, ok := errors.AsType[*httpapi.ServiceError](err)
			switch {
			case !ok || t.Emitted():
				return err
			case c.lower(r, refused):
			case c.refused.Learn(r.Model, refused, sent):
			case d.signed && refused.RefusesReasoning():
				forget = true
			default:
				return err
			}
		}
	})
}

// limit is what an answer may have: what was asked for, but no more than the model takes.
func (c *client) limit(r provider.Request) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	most := c.options.MaxTokens
	if r.Parameters != nil {
		most = cmp.Or(r.Parameters.MaxOutput, most)
	}
	if takes := c.limits[r.Model]; takes > 0 {
		most = min(most, takes)
	}
	return most
}

// tooMany is how the service refuses max_tokens, and says what it would take:
// "max_tokens: 32000 > 8192, which is the maximum allowed number of …".
var tooMany = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`max_tokens: \d+ > (\d+), which is the maximum`)
})

// lower keeps what a model takes for max_tokens, where the error says so. It
// reports whether that is less than before.
func (c *client) lower(r provider.Request, refused *httpapi.ServiceError) bool {
	said := tooMany().FindStringSubmatch(refused.Message)
	if refused.Status != 400 || said == nil {
		return false
	}
	limit, err := strconv.Atoi(said[1])
	if err != nil || limit <= 0 || limit >= c.limit(r) {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.limits[r.Model] = limit
	return true
}

// Models lists what the service offers, as [httpapi.Service.Models] does.
func (c *client) Models(ctx context.Context) ([]protocol.Model, error) {
	return c.service.Models(ctx, func(ctx context.Context) ([]protocol.Model, error) {
		var list modelList
		if err := c.service.Get(ctx, "/models", url.Values{"limit": {strconv.Itoa(modelPage)}}, &list); err != nil {
			return nil, err
		}
		found := make([]protocol.Model, 0, len(list.Data))
		for _, m := range list.Data {
			found = append(found, protocol.Model{ModelID: m.ID, ModelName: m.DisplayName, ContextWindow: m.MaxInputTokens})
		}
		return found, nil
	})
}
