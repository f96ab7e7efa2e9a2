package redact_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"net/url"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"nexus.internal/protocol/redact"
)

// spelled is a text as the content of a JSON string, each character in one of the ways
// that JSON has for it.
func spelled(text string, any *rand.Rand) string {
	var b strings.Builder
	for _, c := range []byte(text) {
		switch any.IntN(4) {
		case 0:
			fmt.Fprintf(&b, `\u%04x`, c)
		case 1:
			fmt.Fprintf(&b, `\u%04X`, c)
		default:
			if c == '/' && any.IntN(2) == 0 || c == '"' || c == '\\' {
				b.WriteByte('\\')
			}
			b.WriteByte(c)
		}
	}
	return b.String()
}

const awkward = `sk-can=ary+3f/9a"77\b1c2==`

// However a service spells a key in JSON, or in JSON within JSON, or breaks it into
// lines of an event's value, and however the answer is cut into pieces, no reader finds
// the key in it.
func TestAttackSpelledKey(t *testing.T) {
	for seed := range uint64(90) {
		any := rand.New(rand.NewPCG(seed, 24))
		text := spelled(awkward, any)
		if seed%3 == 0 { // as a string in a string
			text = spelled(text, any)
		}
		end := []string{"\n", "\r", "\r\n"}[any.IntN(3)]
		before := []string{"", "data: {}" + end + end}[any.IntN(2)] // another event
		event := before + `data: {"choices":[{"delta":{"content":"before ` + text + ` after"}}]}` + end + end
		if seed%5 == 0 {
			at := strings.Index(event, text) + 1 + any.IntN(len(text)-1)
			event = event[:at] + end + "data: " + event[at:]
		}
		found := func(got string) bool {
			for range 3 {
				got = strings.ReplaceAll(got, end+"data: ", "")
				if strings.Contains(got, awkward) {
					return true
				}
				var next string
				quoted := `"` + got + `"`
				if json.Unmarshal([]byte(quoted), &next) != nil {
					_, inner, _ := strings.Cut(got, `"content":"`)
					inner, _, _ = strings.Cut(inner, `"}}]}`)
					if json.Unmarshal([]byte(`"`+inner+`"`), &next) != nil {
						return false
					}
				}
				got = next
			}
			return strings.Contains(got, awkward)
		}
		if !found(event) && seed%5 != 0 {
			t.Fatalf("the test does not find the key in %q", event)
		}
		for _, n := range []int{1, 7, 40, len(event)} {
			got := string(pieces([]byte(event), n, redact.Secrets{awkward}))
			if len(got) != len(event) || found(got) || !strings.Contains(got, "***") {
				t.Fatalf("seed %d, pieces of %d: %q of %q", seed, n, got, event)
			}
			if !strings.HasPrefix(got, before+`data: {"choices":[{"delta":{"content":"before *`) || !strings.HasSuffix(got, `* after"}}]}`+end+end) {
				t.Fatalf("seed %d: more than the key is gone: %q", seed, got)
			}
		}
		if got := (redact.Secrets{awkward}).Text(event); found(got) || !strings.Contains(got, "[key]") {
			t.Fatalf("seed %d: in an error: %q", seed, got)
		}
	}
}

// A key whose halves stand in two lines of a value is found, whatever ends a line, and
// whichever event of a piece it is in.
func TestAttackBrokenKey(t *testing.T) {
	for _, end := range []string{"\n", "\r", "\r\n"} {
		for _, before := range []string{"", "data: {}" + end + end} {
			for at := 1; at < len(canary); at++ {
				event := before + "data: " + canary[:at] + end + "data: " + canary[at:] + end + end
				for _, n := range []int{1, 7, len(event)} {
					got := string(pieces([]byte(event), n, redact.Secrets{canary}))
					want := before + "data: " + strings.Repeat("*", len(event)-len(before)-len("data: ")-2*len(end)) + end + end
					if got != want {
						t.Fatalf("pieces of %d of %q: got %q", n, event, got)
					}
				}
			}
		}
	}
}

// A part and a masked key are found in their escapes as well; what is no key stays.
func TestSpelledParts(t *testing.T) {
	secrets := redact.Secrets{canary}
	for text, want := range map[string]string{
		`{"m":"it begins with \u0073k-canary-3"}`:   `{"m":"it begins with [key]"}`,
		`{"m":"sk-c\u002a\u002A\u002ae5f6 is bad"}`: `{"m":"[key] is bad"}`,
		`{"m":"{\"n\":\"\\u0073k-canary-3\"}"}`:     `{"m":"{\"n\":\"[key]\"}"}`,
		"data: sk-ca\ndata: nary\ndata: -3f9a\n\n":  "data: [key]\n\n",
		`{"m":"caf\u00e9 \ud83d\ude00 \u12"}`:       `{"m":"caf\u00e9 \ud83d\ude00 \u12"}`,
	} {
		if got := secrets.Text(text); got != want {
			t.Errorf("%s: got %s, want %s", text, got, want)
		}
	}
}

// forms are a secret as programs write it into a text: each was read in errors of services.
func forms(secret string) map[string]string {
	every := func(format string) string {
		var b strings.Builder
		for _, c := range []byte(secret) {
			fmt.Fprintf(&b, format, c)
		}
		return b.String()
	}
	all := map[string]string{
		"percent": every("%%%02x"), "percent, upper case": every("%%%02X"), "percent of one character": fmt.Sprintf("%%%02x", secret[0]) + secret[1:],
		"percent twice": strings.ReplaceAll(every("%%%02x"), "%", "%25"), "percent in JSON": strings.ReplaceAll(every("%%%02x"), "%", `\u0025`),
		"digits": every("%02x"), "digits, upper case": every("%02X"),
		"base64 in JSON": strings.ReplaceAll(base64.StdEncoding.EncodeToString([]byte(secret)), "/", `\/`),
	}
	for n, before := range []string{"", "u", "u:", "me:", "Bearer "} { // of HTTP's Basic, for example
		all[fmt.Sprint("base64, ", n)] = base64.StdEncoding.EncodeToString([]byte(before + secret + "?>"))
		all[fmt.Sprint("base64 of URLs, ", n)] = base64.RawURLEncoding.EncodeToString([]byte(before + secret))
	}
	return all
}

// A key comes out in no form that a program would write it in, of an answer or an error,
// however the answer is cut into pieces.
func TestEncodedKey(t *testing.T) {
	for _, secret := range []string{canary, "sk-~~~???>>>/ooo/77=="} {
		secrets := redact.New(secret, parse(t, "http://x"))
		for name, form := range forms(secret) {
			event := `data: {"content":"before ` + form + ` after"}` + "\n\n"
			for _, n := range []int{1, 7, len(event)} {
				got := string(pieces([]byte(event), n, secrets))
				if kept := len(event) - strings.Count(got, "*"); len(got) != len(event) || kept > len(event)-len(form)+16 ||
					!strings.HasPrefix(got, `data: {"content":"before `) || !strings.HasSuffix(got, ` after"}`+"\n\n") {
					t.Errorf("%s, in pieces of %d: %s of %s", name, n, got, event)
				}
			}
			if got := secrets.Text(event); len(got) > len(event)-len(form)+len("[key]")+16 || !strings.Contains(got, "[key]") || !strings.HasSuffix(got, " after\"}\n\n") {
				t.Errorf("%s, in an error: %s", name, got)
			}
			if got := secrets.Whole(event, "[secret]"); len(got) > len(event)-len(form)+len("[secret]")+16 || !strings.Contains(got, "[secret]") {
				t.Errorf("%s, as a whole: %s", name, got)
			}
		}
	}
	for _, text := range []string{"100 %, 5 %d, 7%\n", "%zz%41%", "c2stY2F"} {
		if got := redact.New(canary, parse(t, "http://x")).Text(text); got != text {
			t.Errorf("got %q for %q, which is no key", got, text)
		}
	}
	if got := redact.Of("a-word").Text("YS13b3Jk 612d776f7264"); got != "YS13b3Jk 612d776f7264" {
		t.Errorf("of a secret that is as short as a word: %q", got)
	}
}

// What a model says goes on at once: nothing of an event without a secret is kept back.
func TestStreamHoldsNothingBack(t *testing.T) {
	for _, event := range []string{
		`data: {"content":"a \u00e9 \\ \/ \n"}` + "\n\n", "event: x\ndata: {\"a\":\"\\u0041\"}\n\n", "data: {\ndata: \"a\":\"\\u0041\"}\n\n", "data: {}\r\n\r\n",
	} {
		s := redact.NewStream(redact.Secrets{canary})
		if got := s.Next([]byte(event)); string(got) != event {
			t.Errorf("of %q only %q goes on", event, got)
		}
	}
}

func TestLetters(t *testing.T) {
	if got := redact.UnescapeLetters([]byte(`{"err\u006fr":"\u0022error\u0022: \\u0065 \"x\""}`)); !bytes.Equal(got, []byte(`{"error":"\u0022error\u0022: \\u0065 \"x\""}`)) {
		t.Errorf("got %s", got)
	}
}

// FuzzSpelled holds Next and Text to: pieces change nothing, the length stays, no key in
// any reading.
func FuzzSpelled(f *testing.F) {
	f.Add([]byte(`before \u0073k-canary-3f9a77b1c2d4e5f6 after \`), 5)
	f.Add([]byte(`%73k-%2563anary-3f9a77b1c2d4e5f6 \u002573k-canary-3f9a77b1c2d4e5f6 %`), 5)
	f.Add([]byte("data: \\\\u0073k-\ndata: x\r\ndata:\\u"), 3)
	f.Fuzz(func(t *testing.T, text []byte, n int) {
		secrets := redact.Secrets{canary}
		whole := pieces(text, max(len(text), 1), secrets)
		if got := pieces(text, max(n, 1), secrets); !bytes.Contains(text, []byte("*")) && len(got) != len(text) {
			t.Fatalf("%d bytes of %d: %q", len(got), len(text), got)
		}
		if bytes.Contains(whole, []byte(canary)) {
			t.Fatalf("got %q", whole)
		}
		secrets.Text(string(text))
	})
}

func BenchmarkStream(b *testing.B) {
	for name, event := range map[string]string{
		"plain": `data: {"choices":[{"delta":{"content":"hello world,\n some \"words\""}}]}` + "\n\n", "escaped": `data: {"choices":[{"delta":{"content":"caf\u00e9 and some words"}}]}` + "\n\n",
	} {
		b.Run(name, func(b *testing.B) {
			base, _ := url.Parse("http://x")
			s := redact.NewStream(redact.New(canary, base))
			p := []byte(event)
			b.ReportAllocs()
			for b.Loop() {
				s.Next(p)
			}
		})
	}
}
