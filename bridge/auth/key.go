package auth

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
)

// Prefix begins every key, so that tools can tell one in a text.
const Prefix = "nxk_"

const (
	secretBytes = 32
	maxKeyText  = 512 // bytes, of a key that somebody gives us
	redacted    = Prefix + "[redacted]"
)

// ErrMalformed says that a text is not a key of ours.
var ErrMalformed = errors.New("malformed API key: want nxk_ and letters, digits, '-' or '_'")

// Key is an API key. The zero value is no key and matches nothing.
type Key struct {
	text string
}

// Generate makes a key of 32 random bytes.
func Generate() Key {
	secret := make([]byte, secretBytes)
	rand.Read(secret) // never fails
	return Key{text: Prefix + base64.RawURLEncoding.EncodeToString(secret)}
}

// Parse reads a key as a person or a file gives it; white space around it is
// ignored. The error never shows the text.
func Parse(text string) (Key, error) {
	text = strings.TrimSpace(text)
	body, ok := strings.CutPrefix(text, Prefix)
	if !ok || body == "" || len(text) > maxKeyText || strings.ContainsFunc(body, notURLSafe) {
		return Key{}, ErrMalformed
	}
	return Key{text: text}, nil
}

func notURLSafe(r rune) bool {
	return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_')
}

// Reveal is the key itself, for a header or a file.
func (k Key) Reveal() string { return k.text }

// IsZero reports whether there is no key.
func (k Key) IsZero() bool { return k.text == "" }

// Matches reports whether presented is the key. The time it takes says nothing
// about how much of it is right.
func (k Key) Matches(presented string) bool {
	if k.IsZero() {
		return false
	}
	want, got := sha256.Sum256([]byte(k.text)), sha256.Sum256([]byte(presented))
	return subtle.ConstantTimeCompare(want[:], got[:]) == 1
}

// String is a redacted text.
func (k Key) String() string { return redacted }

// GoString is a redacted text, for %#v.
func (k Key) GoString() string { return redacted }

// Format writes a redacted text for every verb, also those that look inside.
func (k Key) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(redacted)) }

// MarshalText is a redacted text, for encoders of every kind.
func (k Key) MarshalText() ([]byte, error) { return []byte(redacted), nil }
