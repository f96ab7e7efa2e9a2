package modelgate

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
)

// dialect is how the services of one type are spoken to.
type dialect struct {
	name  string   // for people
	posts []string // what is posted to, below the version
	// version is the part of a path that the services' base_url lacks.
	version string
}

// models is what is read of all services.
var models = regexp.MustCompile(`^models(?:/[A-Za-z0-9._~:@+,=-]+)*$`)

// dialects are those of the types of providers.
var dialects = map[string]dialect{
	"anthropic":        {"Anthropic messages", []string{"messages", "messages/count_tokens"}, "v1/"},
	"openai":           {"OpenAI chat completions", []string{"chat/completions", "completions"}, ""},
	"openai-responses": {"OpenAI responses", []string{"responses"}, ""},
}

// spoken are the types of providers that a program can be given whose protocol says what it speaks
// with its models.
var spoken = map[string]string{"claude": "anthropic", "codex": "openai-responses"}

// find is the dialect of a type of providers for programs of a protocol.
func find(provider, kind, protocol string) (dialect, error) {
	d, ok := dialects[kind]
	if !ok {
		return d, fmt.Errorf("provider %s is of type %s, whose models no program of another make can be given: name one of type anthropic, openai or openai-responses", provider, kind)
	}
	if want := spoken[protocol]; want != "" && want != kind {
		return d, fmt.Errorf("provider %s is of type %s, and programs of protocol %s speak %s with their models: name a provider of type %s", provider, kind, protocol, dialects[want].name, want)
	}
	return d, nil
}

// takes reports whether a request is one of the dialect.
func (d dialect) takes(method, path string) bool {
	switch method {
	case http.MethodPost:
		return slices.Contains(d.posts, path)
	case http.MethodGet:
		return models.MatchString(path)
	}
	return false
}

// environment is what a program of a protocol is told that speaks with a provider of a type at base.
func environment(kind, protocol, base, token string) []string {
	if kind != "anthropic" {
		return []string{"OPENAI_BASE_URL=" + base + "/v1", "OPENAI_API_BASE=" + base + "/v1", "OPENAI_API_KEY=" + token}
	}
	name := "ANTHROPIC_API_KEY"
	if protocol == "claude" { // which asks a person about a key that it does not know
		name = "ANTHROPIC_AUTH_TOKEN"
	}
	return []string{"ANTHROPIC_BASE_URL=" + base, name + "=" + token}
}
