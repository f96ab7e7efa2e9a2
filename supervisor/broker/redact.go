package broker

import (
	"bytes"
	"cmp"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

const (
	// minSecret is the shortest key that is taken out of answers, in bytes: a
	// shorter one is a word that a model may say.
	minSecret = 8
	// minPart is how many bytes of a secret in a row give it away in an error.
	minPart = 8
	// minEnd is how many bytes of a secret stand beside the dots or stars of a
	// service that masks it.
	minEnd = 4
	// minHidden is how long a value in base_url's query, or its user, must be
	// to be a secret: shorter ones are names and versions.
	minHidden = 16
)

// secrets are what an answer must not hold.
type secrets []string

// secretsOf are a service's key and what its base_url hides, each as it is and
// as JSON and URLs may write it.
func secretsOf(key string, base *url.URL) secrets {
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
	var all secrets
	for _, s := range plain {
		if len(s) < minSecret {
			continue
		}
		html := strings.NewReplacer("<", `\u003c`, ">", `\u003e`, "&", `\u0026`, `"`, `\"`, `\`, `\\`).Replace(s)
		all = append(all, s, html, strings.ReplaceAll(s, "/", `\/`), url.QueryEscape(s), url.PathEscape(s))
	}
	slices.SortFunc(all, func(a, b string) int { return cmp.Or(len(b)-len(a), strings.Compare(a, b)) })
	return slices.Compact(all)
}

// redactor overwrites secrets in a stream of bytes, whose length stays.
type redactor struct {
	secrets secrets
	held    []byte // the end of what came, if it may be the beginning of a secret
}

// next returns what may go on of all that came. It is valid until the next
// call; p itself may be overwritten.
func (r *redactor) next(p []byte) []byte {
	if len(r.secrets) == 0 {
		return p
	}
	if len(r.held) > 0 {
		p = append(r.held, p...)
	}
	for _, s := range r.secrets {
		for at := 0; ; at += len(s) {
			i := bytes.Index(p[at:], []byte(s))
			if i < 0 {
				break
			}
			at += i
			blank(p[at : at+len(s)])
		}
	}
	n := len(p) - r.tail(p)
	out := p[:n]
	// Of its own, for out is still to be read and the caller reuses p.
	r.held = append([]byte(nil), p[n:]...)
	return out
}

// tail is how many bytes at the end of p may begin a secret.
func (r *redactor) tail(p []byte) int {
	longest := 0
	for _, s := range r.secrets {
		for n := min(len(s)-1, len(p)); n > longest; n-- {
			if string(p[len(p)-n:]) == s[:n] {
				longest = n
			}
		}
	}
	return longest
}

// rest is what was held at the end of the stream: the beginning of a secret, and
// then it is one's part, or no such thing.
func (r *redactor) rest() []byte {
	if len(r.held) >= minPart {
		blank(r.held)
	}
	return r.held
}

func blank(p []byte) {
	for i := range p {
		p[i] = '*'
	}
}

// masked is a word that a service cut something out of. A quote that JSON
// escapes ends it like any other, with its backslash left where it is.
var masked = regexp.MustCompile(word + `(?:\*{2,}|\.{2,}|…|\\u2026|x{4,}|X{4,})` + word)

const word = `(?:[^\s"'<>\\]|\\[^\s"'<>])*`

// scrub takes the secrets out of an error: whole, in parts of 8 bytes and more,
// and where the service masked the middle.
func (s secrets) scrub(text string) string {
	for _, secret := range s {
		text = scrubParts(text, secret)
		text = masked.ReplaceAllStringFunc(text, func(word string) string {
			if strings.Contains(word, secret[:minEnd]) || strings.Contains(word, secret[len(secret)-minEnd:]) {
				return "[key]"
			}
			return word
		})
	}
	return text
}

// scrubParts replaces all that is a part of the secret.
func scrubParts(text, secret string) string {
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
