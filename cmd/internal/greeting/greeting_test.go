package greeting_test

import (
	"strings"
	"testing"

	"nexus.internal/cmd/internal/greeting"
)

func TestGreeting(t *testing.T) {
	var said strings.Builder
	if err := greeting.Write(&said, "127.0.0.1:8765", "https://10.0.0.1:8765", "/home/x/server.key"); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string][2]string{
		said.String():                                {"http://127.0.0.1:8765", "/home/x/server.key"},
		"a warning\n" + said.String() + "more\n":     {"http://127.0.0.1:8765", "/home/x/server.key"},
		"nexus listening on http://127.0.0.1:8765\n": {},
		"nexus listening on http://127.0.0.1:8765\nkey file: \"/home/\\u001b[31m\\\"x\"\n": {"http://127.0.0.1:8765", "/home/\x1b[31m\"x"},
		"": {},
	} {
		if url, key, err := greeting.Read(strings.NewReader(text)); err != nil || url != want[0] || key != want[1] {
			t.Errorf("%q: got %q, %q, %v, want %q", text, url, key, err, want)
		}
	}
}
