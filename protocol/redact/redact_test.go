package redact_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log" //nolint:depguard // of net/http
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"nexus.internal/protocol/redact"
)

const canary = "sk-canary-3f9a77b1c2d4e5f6"

func parse(t *testing.T, text string) *url.URL {
	t.Helper()
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func TestText(t *testing.T) {
	base := parse(t, "https://user:pa55%2Fword@host.example/v1?version=2024-10-21&hidden=hidden-in-the-query")
	secrets := redact.New(canary, base)
	for _, tt := range []struct{ name, text, want string }{
		{"whole", "bad key " + canary + ", I say", "bad key [key], I say"},
		{"a part", "it begins with " + canary[:9], "it begins with [key]"},
		{"too small a part", "it begins with " + canary[:7], "it begins with sk-cana"},
		{"masked", "key sk-c***e5f6 or ...e5f6, not ****5678", "key [key] or [key] not ****5678"},
		{"masked within JSON", `{"m":"\"sk-c\u2026\" is bad"}`, `{"m":"\"[key]\" is bad"}`},
		{"of base_url", "pa55/word, pa55\\/word, pa55%2Fword, hidden-in-the-query", "[key], [key], [key], [key]"},
		{"no secret", "2024-10-21 user host.example", "2024-10-21 user host.example"},
	} {
		if got := secrets.Text(tt.text); got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
	if got := redact.New("abcd", parse(t, "http://x")).Text("abcd, abc"); got != "[key], abc" {
		t.Errorf("a short key: %q", got)
	}
	if got := redact.New("abc", parse(t, "http://x")).Text("abc"); got != "abc" {
		t.Errorf("what is too short to be a key: %q", got)
	}
}

func TestLinks(t *testing.T) {
	got := redact.StripURLs(`see https://a:b@c.example/d?e=f#g "http://[" and ftp://a:b@c`)
	if want := `see https://c.example/d "[url]" and ftp://a:b@c`; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// A model may say what is a short key, which is no secret within an answer.
func TestShortKeyInAnAnswer(t *testing.T) {
	secrets := redact.New("word", parse(t, "http://x?long="+canary))
	if got := pieces([]byte("a word, "+canary), 3, secrets); string(got) != "a word, "+strings.Repeat("*", len(canary)) {
		t.Errorf("got %q", got)
	}
}

// What a log gets of a failed request is none of what the other side sent.
func TestFault(t *testing.T) {
	raw := func(answer string) *httptest.Server {
		return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			_, _ = io.WriteString(conn, answer)
		}))
	}
	const closed = "127.0.0.1:1" // a port that was free a moment ago may be somebody's by now
	garbage, silent := raw(canary+"\r\n\r\n"), raw("")
	defer garbage.Close()
	defer silent.Close()
	certified := httptest.NewUnstartedServer(http.NotFoundHandler())
	certified.Config.ErrorLog = log.New(io.Discard, "", 0)
	certified.StartTLS()
	defer certified.Close()
	for _, tt := range []struct{ name, url, want string }{
		{"nobody listens", "http://" + closed, "dial tcp " + closed + ": connect: connection refused"},
		{"no HTTP", garbage.URL, "it does not answer as HTTP does"},
		{"no answer", silent.URL, "the connection broke off"},
		{"no TLS", strings.Replace(garbage.URL, "http", "https", 1), "it does not answer as HTTP does"},
		{"a stranger's certificate", certified.URL, "its certificate is not to be trusted"},
	} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, tt.url, nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := http.DefaultClient.Do(request)
		if err == nil {
			response.Body.Close()
			t.Errorf("%s: got an answer", tt.name)
			continue
		}
		if got := redact.ScrubError(err); got != tt.want {
			t.Errorf("%s: got %q for %v, want %q", tt.name, got, err, tt.want)
		}
	}
	for err, want := range map[error]string{
		fmt.Errorf("x: %w", context.DeadlineExceeded):                                            "it took too long",
		&url.Error{Op: "Post", URL: canary, Err: &net.DNSError{Err: "no", Name: "host.example"}}: "lookup host.example: no",
		errors.New(canary): "it does not answer as HTTP does",
	} {
		if got := redact.ScrubError(err); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// pieces passes text through a stream in pieces of n bytes.
func pieces(text []byte, n int, secrets redact.Secrets) []byte {
	r := redact.NewStream(secrets)
	var out []byte
	for len(text) > 0 {
		piece := append([]byte(nil), text[:min(n, len(text))]...)
		text = text[len(piece):]
		out = append(out, r.Next(piece)...)
	}
	return append(out, r.Rest()...)
}

// Whatever a service says, no key comes out, nothing else is lost, and the
// length stays.
func FuzzStream(f *testing.F) {
	f.Add([]byte("before "+canary+" after"), 5, canary)
	f.Add([]byte("aaaaaaaab"), 3, "aaaaaaab")
	f.Add([]byte("before "+canary[:12]+"\n"), 5, canary)
	f.Add([]byte("before "+canary[:12]+"\r\ndata: "+canary[12:20]+"\rdat"), 4, canary)
	f.Fuzz(func(t *testing.T, text []byte, n int, key string) {
		if len(key) < 8 || strings.Contains(key, "*") {
			return
		}
		got := pieces(text, max(n, 1), redact.Secrets{key})
		if len(got) != len(text) || bytes.Contains(got, []byte(key)) {
			t.Fatalf("got %q for %q", got, text)
		}
		if bytes.Contains(valueBreak.ReplaceAll(got, nil), []byte(key)) {
			t.Fatalf("the lines of a value are the key: got %q for %q", got, text)
		}
		for i, c := range got {
			if c != text[i] && c != '*' {
				t.Fatalf("byte %d changed: %q for %q", i, got, text)
			}
		}
		if bytes.ContainsAny(text, `*\`) {
			return // FuzzSpelled and TestAttackSpelledKey know of escapes
		}
		if value := valueBreak.ReplaceAll(text, nil); !bytes.Contains(value, []byte(key)) && bytes.Contains(got, []byte("*")) {
			// Only the beginning of a key at the very end may go.
			end := text[bytes.IndexByte(got, '*'):]
			if !strings.HasPrefix(key, string(end)) && !strings.HasPrefix(key, string(valueBreak.ReplaceAll(end, nil))) {
				t.Fatalf("took %q out of %q", end, text)
			}
		}
	})
}

// valueBreak is what may stand between two lines of an event's value, or the beginning
// of that at the end of what came.
var valueBreak = regexp.MustCompile(`(?:\r\n|\r|\n)(?:data: ?|(?:d|da|dat|data)?\z)`)

// An error shows no part of a key.
func FuzzText(f *testing.F) {
	f.Add("bad key sk-cana***e5f6, that is "+canary, canary)
	f.Fuzz(func(t *testing.T, text, key string) {
		if len(key) < 8 || strings.ContainsAny(key, "[]") { // what stands in its place is no part of it
			return
		}
		got := redact.Secrets{key}.Text(text)
		for i := 0; i+8 <= len(key); i++ {
			if strings.Contains(got, key[i:i+8]) {
				t.Fatalf("%q shows %q", got, key[i:i+8])
			}
		}
	})
}
