package wire

import (
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
)

const (
	// minPart is how many bytes of a secret in a row give it away.
	minPart = 8
	// minSecret is the length of a user's name or of a value in base_url's query
	// that may be a key; shorter ones are names, versions and the like.
	minSecret = 16
	// minEnd is how many bytes of a secret stand beside the dots or stars of a
	// service that masks it: "sk-p…cret".
	minEnd = 4
)

// Compiled when first needed: each start of a child would pay for it.
var (
	links  = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`https?://[^\s"'<>]+`) })
	masked = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`[^\s"'<>]*(?:\*{2,}|\.{2,}|…|x{4,}|X{4,})[^\s"'<>]*`)
	})
)

// secrets are what no error may show, the key first.
type secrets []string

// secretsOf finds the secrets of a provider: its key, and what base_url holds.
func secretsOf(key string, base *url.URL) secrets {
	all := secrets{key}
	for _, values := range base.Query() {
		for _, value := range values {
			if len(value) >= minSecret {
				all = append(all, value)
			}
		}
	}
	if password, ok := base.User.Password(); ok {
		all = append(all, password)
	}
	if name := base.User.Username(); len(name) >= minSecret {
		all = append(all, name)
	}
	// What is shorter is no secret, and part of many words.
	return slices.DeleteFunc(all, func(s string) bool { return len(s) < minEnd })
}

// redact takes the secrets out of text: whole, in parts of 8 bytes and more, and
// masked by a service; and of every URL its query and its user.
func (s secrets) redact(text string) string {
	text = links().ReplaceAllStringFunc(text, plain)
	for _, secret := range s {
		text = strings.ReplaceAll(text, secret, "[key]")
		text = cutParts(text, secret)
		text = masked().ReplaceAllStringFunc(text, func(word string) string {
			if len(secret) >= minPart && (strings.Contains(word, secret[:minEnd]) || strings.Contains(word, secret[len(secret)-minEnd:])) {
				return "[key]"
			}
			return word
		})
	}
	return text
}

// cutParts replaces all that is a part of the secret.
func cutParts(text, secret string) string {
	var b strings.Builder
	for i := 0; i < len(text); {
		end := i + minPart
		if end > len(text) || !strings.Contains(secret, text[i:end]) {
			b.WriteByte(text[i])
			i++
			continue
		}
		for end < len(text) && strings.Contains(secret, text[i:end+1]) {
			end++
		}
		b.WriteString("[key]")
		i = end
	}
	return b.String()
}

// plain is a URL without its user and its query.
func plain(link string) string {
	u, err := url.Parse(link)
	if err != nil {
		return "[url]"
	}
	u.User, u.RawQuery, u.ForceQuery, u.Fragment = nil, "", false, ""
	return u.String()
}
