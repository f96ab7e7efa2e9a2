package httpapi

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"time"

	"nexus.internal/protocol"
	"nexus.internal/protocol/redact"
	"nexus.internal/protocol/tokencount"
	"nexus.internal/protocol/tracing"
)

// AuthMethod says how the key is sent.
type AuthMethod string

// The methods of config.json.
const (
	Bearer  AuthMethod = "bearer"    // Authorization: Bearer KEY
	APIKey  AuthMethod = "api-key"   // api-key: KEY, as Azure wants it
	XAPIKey AuthMethod = "x-api-key" // x-api-key: KEY, as Anthropic wants it
	None    AuthMethod = "none"      // no key at all
)

const (
	defaultIdle     = 120 * time.Second
	defaultAttempts = 4
	defaultBackoff  = 500 * time.Millisecond
	maxList         = 16 << 20 // bytes of the answer to a Get
)

// Options says which service is spoken to and how. The zero value of a field
// means its default.
type Options struct {
	Name         string           // of the provider in config.json, for messages and Model.Provider; needed
	BaseURL      string           // http or https, a query is kept; needed
	APIKey       string           // the key itself; needed unless AuthMethod is None
	AuthMethod   AuthMethod       // needed
	Models       []protocol.Model // what is known of models: names, context windows, and the list where the service has none
	Broker       bool             // BaseURL is that of a broker (SPEC §5.7): what it refuses is told in its own words alone
	HTTPClient   *http.Client     // default: one of its own that heeds the proxy variables; no redirect is followed in any case
	IdleTimeout  time.Duration    // longest silence of the service; default 120 s
	MaxAttempts  int              // tries for one answer, the first included; default 4
	RetryBackoff time.Duration    // wait before the second try, doubled for each one after it; default 500 ms
}

// Vendor is what all services of one kind have in common.
type Vendor struct {
	// Version is the end of BaseURL's path that an address may lack: "/v1"; ""
	// for none.
	Version string
	Header  http.Header // of every request, beside the key
}

// Service is one remote service.
type Service struct {
	options Options
	base    string     // where paths are added to, without a slash at its end, query and fragment
	query   url.Values // of base_url, part of every request
	header  http.Header
	client  http.Client
	secrets redact.Secrets // for errors
}

// New returns a service. It opens no connection. The error says what is wrong
// with the options.
func New(o Options, v Vendor) (*Service, error) {
	if o.IdleTimeout <= 0 {
		o.IdleTimeout = defaultIdle
	}
	if o.MaxAttempts <= 0 {
		o.MaxAttempts = defaultAttempts
	}
	if o.RetryBackoff <= 0 {
		o.RetryBackoff = defaultBackoff
	}
	full, err := parseBase(o.BaseURL)
	if err == nil {
		err = checkAuth(o)
	}
	if err != nil {
		return nil, fmt.Errorf("provider %s: %w", o.Name, err)
	}
	s := &Service{options: o, query: full.Query(), header: v.Header, secrets: redact.New(o.APIKey, full)}
	path := strings.TrimRight(full.EscapedPath(), "/")
	origin := url.URL{Scheme: full.Scheme, User: full.User, Host: full.Host}
	s.base = origin.String() + strings.TrimSuffix(path, v.Version) + v.Version
	if o.HTTPClient != nil {
		s.client = *o.HTTPClient
	}
	s.client.CheckRedirect = func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse // a key is for the one service it was given for
	}
	return s, nil
}

func parseBase(text string) (*url.URL, error) {
	base, err := url.Parse(text)
	switch {
	case err != nil:
		return nil, errors.New("base_url is not a URL")
	case base.Scheme != "http" && base.Scheme != "https", base.Host == "":
		return nil, errors.New("base_url is not an http or https URL with a host")
	}
	return base, nil
}

func checkAuth(o Options) error {
	switch o.AuthMethod {
	case None:
		return nil
	case Bearer, APIKey, XAPIKey:
	default:
		return fmt.Errorf("auth_method %q is not known, want bearer, api-key, x-api-key or none", string(o.AuthMethod))
	}
	if o.APIKey == "" {
		return errors.New("there is no API key")
	}
	return nil
}

// request makes a request with the key and all else that every request has. path
// begins with a slash; a nil body is none, and so is a model of "".
func (s *Service) request(ctx context.Context, method, path string, query url.Values, body []byte, model string) (*http.Request, error) {
	request, err := http.NewRequestWithContext(ctx, method, s.base+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	all := maps.Clone(query)
	for name, values := range s.query {
		if all == nil {
			all = url.Values{}
		}
		all[name] = append(all[name], values...)
	}
	request.URL.RawQuery = all.Encode()
	maps.Copy(request.Header, s.header)
	request.Header.Set("Accept", "application/json")
	request.Header.Set("User-Agent", "nexus-child")
	if trace := tracing.From(ctx).String(); trace != "" {
		request.Header.Set("Traceparent", trace)
	}
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	if model != "" && s.options.Broker {
		request.Header.Set(protocol.ModelHeader, model)
	}
	switch s.options.AuthMethod {
	case Bearer:
		request.Header.Set("Authorization", "Bearer "+s.options.APIKey)
	case APIKey:
		request.Header.Set("Api-Key", s.options.APIKey)
	case XAPIKey:
		request.Header.Set("X-Api-Key", s.options.APIKey)
	case None:
	}
	return request, nil
}

// do sends a request. A response that is no answer is an error: a *ServiceError
// where the service says why. answer takes a success that is no event stream; it is nil
// where none is wanted.
func (s *Service) do(request *http.Request, answer *tokencount.Answer) (*http.Response, error) {
	response, err := s.client.Do(request)
	if err != nil {
		return nil, err
	}
	return s.checkResponse(response, answer)
}

// Get asks for the list at path, which begins with a slash, and reads it into the
// struct that v points to, as Decode does.
func (s *Service) Get(ctx context.Context, path string, query url.Values, v any) error {
	request, err := s.request(ctx, http.MethodGet, path, query, nil, "")
	if err != nil {
		return err
	}
	response, err := s.do(request, nil)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxList+1))
	switch {
	case err != nil:
		return err
	case len(body) > maxList:
		return errLarge
	}
	if e, ok := errors.AsType[*MalformedError](Decode(body, v)); ok {
		return fmt.Errorf("%w: %s", errList, e.Problem)
	}
	return nil
}

// Models lists what list finds at the service, with what the configuration adds
// to it. Where the service has no list, the configured one stands; if there is
// none, the error says why. Models that nobody could choose by their name are
// left out. Only the end of ctx bounds how long a silent service is waited for.
func (s *Service) Models(
	ctx context.Context, list func(context.Context) ([]protocol.Model, error),
) ([]protocol.Model, error) {
	found, err := list(ctx)
	if err != nil || len(found) == 0 {
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case len(s.options.Models) > 0:
			return s.configured(), nil
		case err != nil:
			return nil, fmt.Errorf("list models: %w", s.Explain(err))
		}
		return []protocol.Model{}, nil
	}
	known := map[string]protocol.Model{}
	for _, m := range s.configured() {
		known[m.ModelID] = m
	}
	offered := make([]protocol.Model, 0, len(found))
	for _, m := range found {
		if protocol.CheckModelName(m.ModelID) != nil {
			continue
		}
		entry, ok := known[m.ModelID]
		if !ok {
			entry = s.withProvider(m)
		}
		offered = append(offered, entry)
	}
	return offered, nil
}

func (s *Service) configured() []protocol.Model {
	models := make([]protocol.Model, 0, len(s.options.Models))
	for _, m := range s.options.Models {
		models = append(models, s.withProvider(m))
	}
	return models
}

func (s *Service) withProvider(m protocol.Model) protocol.Model {
	m.Provider = s.options.Name
	m.ModelName = cmp.Or(protocol.CutModelName(m.ModelName), m.ModelID)
	return m
}
