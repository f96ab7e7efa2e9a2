package redact_test

import (
	"strings"
	"testing"

	"nexus.internal/protocol/redact"
)

func TestKeys(t *testing.T) {
	key := "nxk_" + strings.Repeat("aB3-_", 8) + "abc"
	for text, want := range map[string]string{
		"":                                      "",
		"nothing":                               "nothing",
		key:                                     "nxk_[redacted]",
		`{"a":"` + key + `","b":"` + key + `"}`: `{"a":"nxk_[redacted]","b":"nxk_[redacted]"}`,
		"xx" + key + ".x":                       "xxnxk_[redacted].x",
		"nxk_" + key:                            "nxk_[redacted]",
		key[:19]:                                key[:19],
		key[:20]:                                "nxk_[redacted]",
		"nxk_: want nxk_ and letters, é":        "nxk_: want nxk_ and letters, é",
		"nxk_[redacted]":                        "nxk_[redacted]",
	} {
		if got := redact.Keys(text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}
