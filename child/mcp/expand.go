package mcp

import (
	"fmt"
	"strings"

	"nexus.internal/protocol/redact"
)

// minSecret is the least length, in bytes, of what is kept out of logs; what is
// shorter is part of many words.
const minSecret = 8

// expand puts in what ${NAME} and ${NAME:-default} stand for. What came from a
// variable is a secret; with secret, every value is one. A variable that is not
// set makes the server one that cannot be used.
func (s *Server) expand(values map[string]string, secret bool, getenv func(string) (string, bool)) map[string]string {
	if len(values) == 0 {
		return nil
	}
	out := make(map[string]string, len(values))
	for name, value := range values {
		whole, used, missing := expand(value, getenv)
		if missing != "" {
			s.Problem = fmt.Sprintf("the variable %s is not set for this agent, which %s of mcp.json needs: the env of create_agent sets it (nexus-rpc create --env)", missing, name)
		}
		if secret {
			used = append(used, whole)
			if _, token, ok := strings.Cut(whole, " "); ok { // Bearer TOKEN
				used = append(used, token)
			}
		}
		for _, u := range used {
			if len(u) >= minSecret {
				s.secrets = append(s.secrets, u)
			}
		}
		out[name] = whole
	}
	return out
}

// expand returns the text with its variables put in, their values, and the name
// of one that is not set.
func expand(text string, getenv func(string) (string, bool)) (whole string, used []string, missing string) {
	var b strings.Builder
	for {
		before, rest, found := strings.Cut(text, "${")
		inner, after, closed := strings.Cut(rest, "}")
		if !found || !closed {
			b.WriteString(text)
			return b.String(), used, missing
		}
		b.WriteString(before)
		name, fallback, hasFallback := strings.Cut(inner, ":-")
		value, set := getenv(name)
		switch {
		case set && value != "":
			used = append(used, value)
			b.WriteString(value)
		case hasFallback:
			b.WriteString(fallback)
		case !set:
			missing = name
		}
		text = after
	}
}

func (s Server) clean(text string) string { return redact.Of(s.secrets...).Whole(text, "[secret]") }
