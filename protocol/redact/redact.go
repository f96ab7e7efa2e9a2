package redact

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"io"
	"net"
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

// Secrets are what a service must not say, in the forms that [Of] makes of each. The
// longest is first.
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
	return Of(plain...)
}

// Of is each secret in the forms that are looked for as they are: what JSON and URLs make of
// it, and, of one of 8 bytes and more, base64 in both alphabets, wherever it begins in what is
// encoded, and hexadecimal digits. One of fewer than 4 bytes is none. See [Secrets.Text] for
// what is decoded before it is looked for.
func Of(plain ...string) Secrets {
	var all Secrets
	for _, s := range plain {
		if len(s) < minEnd {
			continue
		}
		html := strings.NewReplacer("<", `\u003c`, ">", `\u003e`, "&", `\u0026`, `"`, `\"`, `\`, `\\`).Replace(s)
		all = append(all, s, html, strings.ReplaceAll(s, "/", `\/`), url.QueryEscape(s), url.PathEscape(s))
		if len(s) >= minWord {
			all = append(all, encoded(s)...)
		}
	}
	slices.SortFunc(all, func(a, b string) int { return cmp.Or(len(b)-len(a), strings.Compare(a, b)) })
	return slices.Compact(all)
}

// encoded is a secret in base64 and in hexadecimal digits. In base64 a character has bits of
// two bytes: those that have bits of what stands before or behind the secret are left out.
func encoded(s string) []string {
	digits := hex.EncodeToString([]byte(s))
	all := []string{digits, strings.ToUpper(digits)}
	for before := range 3 {
		for _, alphabet := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
			text := alphabet.EncodeToString(append(make([]byte, before), s...))
			all = append(all, text[(before*8+5)/6:(before+len(s))*8/6])
		}
	}
	return all
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

// masks are what is in every match of masked.
var masks = []string{"**", "..", "…", `\u2026`, "xxxx", "XXXX"}

// Text is an error's text or JSON without the secrets: whole, in parts of 8
// bytes and more, and where the service masked the middle. "[key]" stands in
// their place. Secrets are found however JSON spells them, also in JSON within
// JSON (three levels), over several lines of an event's value, and however URLs escape
// them, up to twice. No other form is found but those of [Of].
func (s Secrets) Text(text string) string {
	if len(text) < minEnd { // no secret is so short
		return text
	}
	windows := s.windows()
	found := s.find(decoded{text: []byte(text)}, windows)
	if escaped([]byte(text)) {
		for _, d := range layers([]byte(text)) {
			found = append(found, s.find(d, windows)...)
		}
	}
	return replace(text, found, "[key]")
}

// Whole is a text or JSON with the mark in the place of each secret as a whole, in the forms of
// [Secrets.Text]. Parts of secrets stay.
func (s Secrets) Whole(text, mark string) string {
	var found []span
	find := func(d decoded) {
		for _, secret := range s {
			for _, one := range whole(string(d.text), secret) {
				found = append(found, span{d.place(one.from), d.place(one.to)})
			}
		}
	}
	find(decoded{text: []byte(text)})
	if escaped([]byte(text)) {
		for _, d := range layers([]byte(text)) {
			find(d)
		}
	}
	return replace(text, found, mark)
}

// replace puts the mark in the place of what was found.
func replace(text string, found []span, mark string) string {
	if len(found) == 0 {
		return text
	}
	slices.SortFunc(found, func(a, b span) int { return cmp.Or(a.from-b.from, b.to-a.to) })
	var b strings.Builder
	done := 0 // of text
	for i := 0; i < len(found); {
		from, to := found[i].from, found[i].to
		for i++; i < len(found) && found[i].from < to; i++ {
			to = max(to, found[i].to)
		}
		b.WriteString(text[done:from])
		b.WriteString(mark)
		done = to
	}
	b.WriteString(text[done:])
	return b.String()
}

// span is a part of a text, from and to, end excluded.
type span struct{ from, to int }

// windows are all parts of the secrets that have the least length of a part.
func (s Secrets) windows() map[string]bool {
	all := map[string]bool{}
	for _, secret := range s {
		for i := 0; i+minPart <= len(secret); i++ {
			all[secret[i:i+minPart]] = true
		}
	}
	return all
}

// find are the places of the secrets by one reading of a text.
func (s Secrets) find(d decoded, windows map[string]bool) (found []span) {
	read := string(d.text)
	for _, secret := range s {
		found = append(found, whole(read, secret)...)
	}
	found = append(found, s.parts(read, windows)...)
	var rest []byte
	var words [][]int
	// Few texts have a mask, and the expression is slow.
	if slices.ContainsFunc(masks, func(mask string) bool { return strings.Contains(read, mask) }) {
		rest = slices.Clone(d.text)
		for _, one := range found {
			clear(rest[one.from:one.to])
		}
		words = masked().FindAllIndex(rest, -1)
	}
	for _, secret := range s {
		for _, at := range words {
			word := string(rest[at[0]:at[1]])
			if len(secret) >= minPart && (strings.Contains(word, secret[:minEnd]) || strings.Contains(word, secret[len(secret)-minEnd:])) {
				found = append(found, span{at[0], at[1]})
			}
		}
	}
	for i, one := range found {
		found[i] = span{d.place(one.from), d.place(one.to)}
	}
	return found
}

// whole are the places of a secret.
func whole(text, secret string) (found []span) {
	for at := 0; ; at += len(secret) {
		i := strings.Index(text[at:], secret)
		if i < 0 {
			return found
		}
		at += i
		found = append(found, span{at, at + len(secret)})
	}
}

// parts are the places of all that is a part of a secret.
func (s Secrets) parts(text string, windows map[string]bool) (found []span) {
	for i := 0; i+minPart <= len(text); {
		if !windows[text[i:i+minPart]] {
			i++
			continue
		}
		end := i + minPart
		for _, secret := range s {
			for end < len(text) && strings.Contains(secret, text[i:end+1]) {
				end++
			}
		}
		found = append(found, span{i, end})
		i = end
	}
	return found
}

// StripURLs is a text whose URLs have no user, query or fragment. It is for text and
// not for JSON.
func StripURLs(text string) string {
	return links().ReplaceAllStringFunc(text, func(link string) string {
		u, err := url.Parse(link)
		if err != nil {
			return "[url]"
		}
		u.User, u.RawQuery, u.ForceQuery, u.Fragment = nil, "", false, ""
		return u.String()
	})
}

// ScrubError says why a request to a service had no answer, in our words and the
// system's: nothing of what the other side sent. It is for a log. Err is not nil.
func ScrubError(err error) string {
	if e, ok := errors.AsType[*net.OpError](err); ok {
		return e.Error()
	}
	if e, ok := errors.AsType[*net.DNSError](err); ok {
		return e.Error()
	}
	_, untrusted := errors.AsType[*tls.CertificateVerificationError](err)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return "it took too long"
	case untrusted:
		return "its certificate is not to be trusted"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "the connection broke off"
	default:
		return "it does not answer as HTTP does"
	}
}
