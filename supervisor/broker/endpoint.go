package broker

import (
	"net/http"
	"net/url"
	"regexp"
	"strings"

	"nexus.internal/protocol"
)

// endpoint is something that a service may be asked for, below its base_url
// and perhaps v1/.
type endpoint struct {
	method string
	path   *regexp.Regexp
	paid   bool // it costs tokens
}

// endpoints are all that the broker forwards: an agent's key is for its model,
// not for files, batches or the account.
var endpoints = []endpoint{
	{http.MethodPost, regexp.MustCompile(`^(?:v1/)?(?:chat/completions|completions|responses|messages)$`), true},
	{http.MethodPost, regexp.MustCompile(`^(?:v1/)?messages/count_tokens$`), false},
	{http.MethodGet, regexp.MustCompile(`^(?:v1/)?models(?:/[A-Za-z0-9._~:@+,=-]+)*$`), false},
}

// route says what is asked for: /PROVIDER/REST, in which REST is plain.
func (b *Broker) route(r *http.Request) (s *service, rest string, paid bool, _ *refusal) {
	if !strings.HasPrefix(r.RequestURI, "/") || r.URL.Host != "" {
		return nil, "", false, refuse(400, "invalid_request_error", "the request's target must be a path: /PROVIDER/REST")
	}
	first, rest, _ := strings.Cut(strings.TrimPrefix(r.URL.EscapedPath(), "/"), "/")
	name, err := url.PathUnescape(first)
	if err != nil {
		return nil, "", false, refuse(400, "invalid_request_error", "the provider's name in the path is not well escaped")
	}
	b.mu.Lock()
	s = b.services[name]
	b.mu.Unlock()
	if s == nil {
		return nil, "", false, refuse(404, "unknown_provider", "the server has no provider %.256q: only those of the home's config.json, with a key or without, can be asked", name)
	}
	for _, e := range endpoints {
		if e.method == r.Method && e.path.MatchString(rest) && isCleanPath(rest) {
			return s, rest, e.paid, nil
		}
	}
	return nil, "", false, refuse(404, "unknown_endpoint", "only POST chat/completions, completions, responses, messages and messages/count_tokens, and GET models, are forwarded to provider %s", name)
}

func isCleanPath(path string) bool {
	for segment := range strings.SplitSeq(path, "/") {
		if segment == "" || segment == "." || segment == ".." {
			return false
		}
	}
	return true
}

// target is the URL that rest stands for. The query of base_url goes before the
// child's own, which cannot change it.
func (s *service) target(rest, query string) *url.URL {
	u := *s.base
	u.Fragment, u.RawFragment = "", ""
	if strings.HasSuffix(strings.TrimSuffix(u.Path, "/"), "/v1") {
		rest = strings.TrimPrefix(rest, "v1/") // of Anthropic's wire, whose paths begin with it
	}
	u.Path = strings.TrimSuffix(u.Path, "/") + "/" + rest
	if u.RawPath != "" {
		u.RawPath = strings.TrimSuffix(u.RawPath, "/") + "/" + rest
	}
	fixed := s.base.Query()
	for pair := range strings.SplitSeq(query, "&") {
		name, _, _ := strings.Cut(pair, "=")
		name, err := url.QueryUnescape(name)
		if err != nil || name == "" || fixed.Has(name) {
			continue
		}
		if u.RawQuery != "" {
			u.RawQuery += "&"
		}
		u.RawQuery += pair
	}
	return &u
}

// notForwarded are headers of a request that are the broker's business: who
// asks, how it got here, and what the connection is.
var notForwarded = []string{
	"Authorization", "Proxy-Authorization", "Api-Key", "X-Api-Key", "X-Goog-Api-Key", "Cookie", "Host", "Accept-Encoding", "Content-Encoding",
	"Expect", protocol.ModelHeader, protocol.ProgramHeader, "Content-Length", "Connection", "Proxy-Connection", "Keep-Alive", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
	"Forwarded", "Via", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Real-Ip",
}

// header is what goes to the service.
func (s *service) header(in http.Header) http.Header {
	out := in.Clone()
	for _, line := range in["Connection"] {
		for name := range strings.SplitSeq(line, ",") {
			out.Del(strings.TrimSpace(name))
		}
	}
	for _, name := range notForwarded {
		out.Del(name)
	}
	out.Set("Accept-Encoding", "identity")
	if _, ok := out["User-Agent"]; !ok {
		out.Set("User-Agent", "nexus")
	}
	switch s.auth {
	case Bearer:
		out.Set("Authorization", "Bearer "+s.key)
	case APIKey:
		out.Set("api-key", s.key)
	case XAPIKey:
		out.Set("x-api-key", s.key)
	case None:
	}
	return out
}

// passesHeader reports whether a header of the service's goes to the child. The
// length does not, so that an answer ends for the child when it is accounted
// for, and not before.
func passesHeader(name string) bool {
	switch name {
	case "Content-Type", "Date", "Retry-After", "Retry-After-Ms", "X-Should-Retry", "Request-Id", "X-Request-Id":
		return true
	}
	return strings.HasPrefix(name, "X-Ratelimit-") || strings.HasPrefix(name, "Anthropic-Ratelimit-")
}
