package openai

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"time"

	sdk "github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/tidwall/gjson"

	"nexus.internal/child/provider"
	"nexus.internal/protocol"
)

// AuthMethod says how the key is sent.
type AuthMethod string

// The methods of config.json.
const (
	Bearer AuthMethod = "bearer"  // Authorization: Bearer KEY
	APIKey AuthMethod = "api-key" // api-key: KEY, as Azure wants it
	None   AuthMethod = "none"    // no key at all
)

const (
	defaultBaseURL  = "https://api.openai.com/v1"
	defaultIdle     = 120 * time.Second
	defaultAttempts = 4
	defaultBackoff  = 500 * time.Millisecond
)

// Options says which service is spoken to and how. The zero value of a field
// means its default.
type Options struct {
	Name         string           // of the provider in config.json, for messages and Model.Provider; default "openai"
	BaseURL      string           // http or https, a query is kept; default https://api.openai.com/v1
	APIKey       string           // the key itself; needed unless AuthMethod is None
	AuthMethod   AuthMethod       // default Bearer
	Models       []provider.Model // what is known of models: names, context windows, and the list where the service has none
	HTTPClient   *http.Client     // default: one of its own that heeds the proxy variables and follows no redirect
	IdleTimeout  time.Duration    // longest silence of the service; default 120 s
	MaxAttempts  int              // tries for one answer, the first included; default 4
	RetryBackoff time.Duration    // wait before the second try, doubled for each one after it; default 500 ms
}

// client is a provider for one service.
type client struct {
	options     Options
	secrets     secrets // for errors
	completions sdk.ChatCompletionService
	models      sdk.ModelService
}

// New returns a provider for a service that speaks OpenAI's chat completions.
// It opens no connection. The error says what is wrong with the options.
func New(o Options) (provider.Provider, error) {
	if o.Name == "" {
		o.Name = "openai"
	}
	if o.BaseURL == "" {
		o.BaseURL = defaultBaseURL
	}
	if o.AuthMethod == "" {
		o.AuthMethod = Bearer
	}
	if o.IdleTimeout <= 0 {
		o.IdleTimeout = defaultIdle
	}
	if o.MaxAttempts <= 0 {
		o.MaxAttempts = defaultAttempts
	}
	if o.RetryBackoff <= 0 {
		o.RetryBackoff = defaultBackoff
	}
	if o.HTTPClient == nil {
		o.HTTPClient = &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse // a key is for the one service it was given for
		}}
	}
	base, err := baseURL(o.BaseURL)
	if err != nil {
		return nil, fmt.Errorf("provider %s: %w", o.Name, err)
	}
	request, err := requestOptions(o, base)
	if err != nil {
		return nil, fmt.Errorf("provider %s: %w", o.Name, err)
	}
	return &client{
		options:     o,
		secrets:     secretsOf(o.APIKey, base),
		completions: sdk.NewChatCompletionService(request...),
		models:      sdk.NewModelService(request...),
	}, nil
}

func baseURL(text string) (*url.URL, error) {
	base, err := url.Parse(text)
	switch {
	case err != nil:
		return nil, errors.New("base_url is not a URL")
	case base.Scheme != "http" && base.Scheme != "https", base.Host == "":
		return nil, errors.New("base_url is not an http or https URL with a host")
	}
	return base, nil
}

// requestOptions are those of every request. Retries are ours, because they are
// told to whoever listens.
func requestOptions(o Options, full *url.URL) ([]option.RequestOption, error) {
	base, query := *full, full.Query()
	base.RawQuery, base.Fragment = "", ""
	request := []option.RequestOption{
		option.WithBaseURL(base.String()),
		option.WithHTTPClient(o.HTTPClient),
		option.WithMaxRetries(0),
		option.WithMiddleware(refuse),
	}
	for name, values := range query {
		for _, value := range values {
			request = append(request, option.WithQueryAdd(name, value))
		}
	}
	switch o.AuthMethod {
	case Bearer:
		request = append(request, option.WithAPIKey(o.APIKey))
	case APIKey:
		request = append(request, option.WithHeader("api-key", o.APIKey))
	case None:
		return request, nil
	default:
		return nil, fmt.Errorf("auth_method %q is not known, want bearer, api-key or none", string(o.AuthMethod))
	}
	if o.APIKey == "" {
		return nil, errors.New("there is no API key")
	}
	return request, nil
}

// Stream asks for one answer. A failed try that will be followed by another is
// told by a Retry. The last error is ErrContextWindow where the service says
// so, the error of ctx where that has ended, and else says what went wrong.
func (c *client) Stream(ctx context.Context, r provider.Request) iter.Seq2[provider.Delta, error] {
	return func(yield func(provider.Delta, error) bool) {
		params, err := translate(r)
		if err != nil {
			yield(nil, c.explain(err))
			return
		}
		for attempt := 1; ; attempt++ {
			a := c.attempt(ctx, params, yield)
			switch {
			case a.err == nil, a.left:
				return
			case ctx.Err() != nil:
				yield(nil, ctx.Err())
				return
			}
			wait, again := c.delay(a, attempt)
			if !again {
				yield(nil, c.explain(a.err))
				return
			}
			reason := fmt.Sprintf("%v; try %d of %d in %v", c.explain(a.err), attempt+1, c.options.MaxAttempts,
				wait.Round(time.Millisecond))
			if !yield(provider.Retry{Reason: reason}, nil) {
				return
			}
			if err := sleep(ctx, wait); err != nil {
				yield(nil, err)
				return
			}
		}
	}
}

// Models lists what the service offers, with what the configuration adds to it.
// Where the service has no list, the configured one stands; if there is none,
// the error says why. Models that nobody could choose by their name are left
// out. Only the end of ctx bounds how long a silent service is waited for.
func (c *client) Models(ctx context.Context) ([]provider.Model, error) {
	page, err := c.models.List(ctx)
	if err != nil || len(page.Data) == 0 {
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case len(c.options.Models) > 0:
			return c.configured(), nil
		case err != nil:
			return nil, fmt.Errorf("list models: %w", c.explain(err))
		}
		return []provider.Model{}, nil
	}
	known := map[string]provider.Model{}
	for _, m := range c.configured() {
		known[m.ModelID] = m
	}
	offered := make([]provider.Model, 0, len(page.Data))
	for _, m := range page.Data {
		if protocol.CheckModelName(m.ID) != nil {
			continue
		}
		entry, ok := known[m.ID]
		if !ok {
			entry = described(c.options.Name, m)
		}
		offered = append(offered, entry)
	}
	return offered, nil
}

// configured is the configured list under the provider's own name.
func (c *client) configured() []provider.Model {
	models := make([]provider.Model, 0, len(c.options.Models))
	for _, m := range c.options.Models {
		m.Provider = c.options.Name
		if m.ModelName == "" {
			m.ModelName = m.ModelID
		}
		models = append(models, m)
	}
	return models
}

// described reads what compatible services say of a model beyond its id:
// OpenRouter a name and context_length, vLLM max_model_len.
func described(service string, m sdk.Model) provider.Model {
	raw := m.RawJSON()
	entry := provider.Model{Provider: service, ModelID: m.ID, ModelName: m.ID}
	if name := gjson.Get(raw, "name"); name.Type == gjson.String {
		entry.ModelName = cmp.Or(protocol.CutModelName(name.Str), m.ID)
	}
	for _, member := range []string{"context_length", "max_model_len", "context_window"} {
		if size := gjson.Get(raw, member); size.Type == gjson.Number && size.Num > 0 {
			entry.ContextWindow = size.Uint()
			break
		}
	}
	return entry
}

// sleep waits for d or the end of ctx.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
