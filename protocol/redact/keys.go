package redact

import (
	"bytes"
	"strings"
)

const (
	keyPrefix  = "nxk_" // of the façade's keys (SPEC §6.5)
	codePrefix = "nxc_" // of the one-time codes for them (SPEC §6.11)
	// minKey is how many letters, digits, '-' and '_' follow in what looks like a key;
	// what is shorter is a name, and no key of ours.
	minKey = 16
)

// Keys is a text without what looks like keys of the façade or one-time codes, whosoever
// they are: "nxk_[redacted]" and "nxc_[redacted]" stand in their place. It is for text
// and for JSON.
func Keys(text string) string {
	return secrets(secrets(text, keyPrefix), codePrefix)
}

// KeysOf is [Keys] for a line: the line itself where nothing in it looks like a key.
func KeysOf(line []byte) []byte {
	if !bytes.Contains(line, []byte(keyPrefix)) && !bytes.Contains(line, []byte(codePrefix)) {
		return line
	}
	return []byte(Keys(string(line)))
}

func secrets(text, prefix string) string {
	if !strings.Contains(text, prefix) {
		return text
	}
	var b strings.Builder
	for {
		before, rest, found := strings.Cut(text, prefix)
		b.WriteString(before)
		if !found {
			return b.String()
		}
		b.WriteString(prefix)
		end := strings.IndexFunc(rest, notOfKey)
		if end < 0 {
			end = len(rest)
		}
		if end >= minKey {
			b.WriteString("[redacted]")
			rest = rest[end:]
		}
		text = rest
	}
}

func notOfKey(r rune) bool {
	return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_')
}
