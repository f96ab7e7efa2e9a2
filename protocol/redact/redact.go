package redact

import (
	"cmp"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
)

const (
	// minWord is the shortest secret that is taken out of a model's answer, in
	// bytes: a shorter one is a word that a model may say.
	minWord = 8
	// minPart is how many bytes of a secret in a row give it away in an error.
	minPart = 8
	// minEnd is how many bytes of a secret stand beside the dots or stars of a
	// service that masks it, as in "sk-p…cret"; what is shorter is no secret.
	minEnd = 4
	// minHidden is how long a value in base_url's query, or its user, must be
	// to be a secret: shorter ones are names and versions.
	minHidden = 16
)

// Secrets are what a service must not say: each as it is, and as JSON and URLs
// may write it. The longest is first.
type Secrets []string

// New finds the secrets of a service: its key, and what its base_url hides.
func New(key string, base *url.URL) Secrets {
	plain := []string{key}
	password, _ := base.User.Password()
	plain = append(plain, password)
	if name := base.User.Username(); len(name) >= minHidden {
		plain = append(plain, name)
	}
	for _, values := range base.Query() {
		for _, value := range values {
			if len(value) >= minHidden {
				plain = append(plain, value)
			}
		}
	}
	var all Secrets
	for _, s := range plain {
		if len(s) < minEnd {
			continue
		}
		html := strings.NewReplacer("<", `\u003c`, ">", `\u003e`, "&", `\u0026`, `"`, `\"`, `\`, `\\`).Replace(s)
		all = append(all, s, html, strings.ReplaceAll(s, "/", `\/`), url.QueryEscape(s), url.PathEscape(s))
	}
	slices.SortFunc(all, func(a, b string) int { return cmp.Or(len(b)-len(a), strings.Compare(a, b)) })
	return slices.Compact(all)
}

// Compiled when first needed: each start of a child would pay for it.
var (
	links  = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`https?://[^\s"'<>]+`) })
	masked = sync.OnceValue(func() *regexp.Regexp {
		// A quote that JSON escapes ends the word like any other, with its backslash
		// left where it is.
		const word = `(?:[^\s"'<>\\]|\\[^\s"'<>])*`
		return regexp.MustCompile(word + `(?:\*{2,}|\.{2,}|…|\\u2026|x{4,}|X{4,})` + word)
	})
)

// Text is an error's text or JSON without the secrets: whole, in parts of 8
// bytes and more, and where the service masked the middle. "[key]" stands in
// their place.
func (s Secrets) Text(text string) string {
	for _, secret := range s {
		text = strings.ReplaceAll(text, secret, "[key]")
		if len(secret) < minPart {
			continue
		}
		text = cutParts(text, secret)
		text = masked().ReplaceAllStringFunc(text, func(word string) string {
			if strings.Contains(word, secret[:minEnd]) || strings.Contains(word, secret[len(secret)-minEnd:]) {
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

// Links is a text whose URLs have no user, query or fragment. It is for text and
// not for JSON.
func Links(text string) string {
	return links().ReplaceAllStringFunc(text, func(link string) string {
		u, err := url.Parse(link)
		if err != nil {
			return "[url]"
		}
		u.User, u.RawQuery, u.ForceQuery, u.Fragment = nil, "", false, ""
		return u.String()
	})
}
