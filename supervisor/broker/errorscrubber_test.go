package broker_test

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"nexus.internal/protocol/redact"
	"nexus.internal/supervisor/broker"
)

// leaks is what services say of a key, as JSON: whole, in part, and masked.
var leaks = canary + ", " + canary[5:15] + `, \"sk-c***e5f6\", sk-c\u2026 and sk-canar***e5f6`

// An error that comes with status 200 shows no more of a key than any other,
// however it is cut into pieces, and what is around it stays as it is.
func TestErrorsWithin(t *testing.T) {
	word := `data: {"choices":[{"delta":{"content":"keys begin with sk-canary"}}]}` + "\n\n"
	clean := `[key], [key], \"[key]\", [key] and [key]`
	tests := []struct{ name, media, format string }{
		{"OpenAI's event", "text/event-stream", word + `data: {"error":{"message":"%s"},"choices":[]}` + "\n\n" + word},
		{"Anthropic's event", "text/event-stream", "event: error\r\n" + `data: {"type":"error","error":{"message":"%s"}}` + "\r\n\r\n" + word},
		{"by its type alone", "text/event-stream", word + `data: {"type": "error","message":"%s"}` + "\n\n"},
		{"by its name alone", "text/event-stream", word + "event: error\ndata: {\"message\":\"%s\"}\n\n" + word},
		{"of a response", "text/event-stream", word + `data: {"response":{"error" : {"message":"%s"}}}` + "\n\n"},
		{"of a response that failed", "text/event-stream", "event: response.failed\ndata: {\"x\":\"%s\"}\n\n" + word},
		{"in many lines", "text/event-stream", word + "data: {\"x\":\"%s\",\ndata: \"error\":\ndata: 1}\n\n" + word},
		{"in no JSON", "text/event-stream", "data: bad key %s\n\n" + word},
		{"in a comment", "text/event-stream", ": bad key %s\n" + word},
		{"an event without an end", "text/event-stream", word + `data: {"error":"%s"}`},
		{"with CR", "text/event-stream", "data: {\"error\":\"%s\"}\r\r" + word},
		{"a document", "application/json", "\n {\"id\":\"%s\",\n\n" + `"error":{"message":"x"}}`},
		{"a document of another type", "text/plain", `{"error":"%s"}`},
	}
	for _, tt := range tests {
		text := fmt.Sprintf(tt.format, leaks)
		for _, n := range []int{1, 7, 30, len(text)} {
			t.Run(fmt.Sprint(tt.name, "/", n), func(t *testing.T) {
				h := newHouse(t, broker.Options{}, func(w http.ResponseWriter, r *http.Request) {
					w.Header().Set("Content-Type", tt.media)
					for rest := text; len(rest) > 0; {
						piece := rest[:min(n, len(rest))]
						rest = rest[len(piece):]
						fmt.Fprint(w, piece)
						_ = http.NewResponseController(w).Flush()
					}
				})
				socket, _ := h.start(broker.Agent{ID: "a"})
				res, answer := h.ask(socket, "{}")
				if want := fmt.Sprintf(tt.format, clean); answer != want || res.StatusCode != 200 {
					t.Errorf("got %s %q, want %q", res.Status, answer, want)
				}
			})
		}
	}
}

// What is no error is a model's, and stays, a part of a key or not.
func TestNoErrors(t *testing.T) {
	for _, text := range []string{
		`data: {"choices":[{"delta":{"content":"sk-canary error ... {\"error\":\"sk-canary\"}"}}],"error":null}` + "\n\n",
		`data: {"choices":[{"delta":{"content":"error"}}],"x":"sk-canary..."}` + "\n\n",
		`{"error": null, "choices":[{"message":{"content":"sk-canary"}}]}`,
	} {
		if out, _ := broker.ScrubErrors([]byte(text), 9, canary); strings.Join(out, "") != text {
			t.Errorf("got %q, want %q", out, text)
		}
	}
}

// Lines that say nothing go on as they are, and cost no allocation each: a service
// may send them without an end.
func TestEmptyLines(t *testing.T) {
	for _, line := range []string{"\n", "\r\n", ":\n", " \n"} {
		answer := []byte(strings.Repeat(line, 16<<10))
		var out []string
		allocs := testing.AllocsPerRun(1, func() { out, _ = broker.ScrubErrors(answer, len(answer), canary) })
		if got := strings.Join(out, ""); got != string(answer) || allocs > 1000 {
			t.Errorf("%q: %d bytes of %d, %.0f allocations", line, len(got), len(answer), allocs)
		}
	}
}

// An event goes on with its last byte, a comment too.
func TestSieveWithoutDelay(t *testing.T) {
	for _, event := range []string{
		"data: {}\n\n", "data: {}\r\n\r\n", "data: {}\r\r", "event: x\ndata: {\ndata: }\n\n", ": ping\n", ": ping\r\n\r\n", "\n",
	} {
		for n := 1; n <= len(event); n++ {
			if len(event)%n != 0 {
				continue
			}
			out, _ := broker.ScrubErrors([]byte(strings.Repeat(event, 3)), n, canary)
			passed := ""
			for i, piece := range out[:len(out)-1] {
				passed += piece
				if whole := (i + 1) * n / len(event) * len(event); len(passed) < whole {
					t.Errorf("%q in pieces of %d: %d bytes of %d after piece %d", event, n, len(passed), whole, i)
				}
			}
		}
	}
}

// An event that is too long to be held is an error by its beginning, or none;
// of an error no more than that goes on.
func TestLongEvents(t *testing.T) {
	long := strings.Repeat("word ", 1<<16)
	said := `data: {"choices":[{"delta":{"content":"` + long + `sk-canary"}}]}` + "\n\n"
	failed := `data: {"error":{"message":"` + canary[:20] + " " + long + canary[:20] + `"}}` + "\n\n"
	for _, n := range []int{1000, 1 << 20} {
		out, held := broker.ScrubErrors([]byte(said+failed+said), n, canary)
		got := strings.Join(out, "")
		if !strings.HasPrefix(got, said) || !strings.HasSuffix(got, "\n\n"+said) {
			t.Errorf("pieces of %d: what a model said is not what it was", n)
			continue
		}
		errs := got[len(said) : len(got)-len(said)]
		if !strings.HasPrefix(errs, `data: {"error":{"message":"[key] word`) || len(errs) > broker.MaxErrorBody || strings.Contains(errs, canary[:8]) {
			t.Errorf("pieces of %d: the error has %d bytes: %.60q", n, len(errs), errs)
		}
		if held > broker.MaxErrorBody {
			t.Errorf("held %d bytes", held)
		}
	}
}

// An answer that is one event without an end is ended with an error: the child,
// which gets the beginning of it alone, would wait for its end, and ask again.
func TestAnEndlessEvent(t *testing.T) {
	defer broker.LowerMaxEvent(1 << 20)()
	for _, tt := range []struct{ name, begin, piece string }{
		{"one line", "", "a"},
		{"one line of data, an error", `data: {"error":"`, "a"},
		{"one line of data, of a model", `data: {"choices":[{"delta":{"content":"`, "a"},
		{"many lines", "", "a\n"},
		{"many errors", `event: error` + "\n", "data: {}\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			sent := 0
			h := newHouse(t, broker.Options{}, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "text/event-stream")
				fmt.Fprint(w, tt.begin)
				piece := []byte(strings.Repeat(tt.piece, 1<<20/len(tt.piece)))
				for sent = 0; sent < 100; sent++ { // MiB
					if _, err := w.Write(piece); err != nil {
						return
					}
				}
			})
			socket, _ := h.start(broker.Agent{ID: "a"})
			_, answer := h.ask(socket, "{}")
			h.upstream.Close() // waits for the handler
			const want = "\n\nevent: error\ndata: {\"error\":{\"type\":\"upstream_error\",\"message\":\"the service sent an event of more than 32 MiB\"}}\n\n"
			if !strings.HasSuffix(answer, want) || sent > 30 {
				t.Errorf("the service sent %d MiB, the child got %d bytes: …%q", sent, len(answer), answer[max(0, len(answer)-200):])
			}
		})
	}
}

// However an answer is cut into pieces, the same comes out; nothing is lost
// that is no part of a key, and no more is held than may be.
func FuzzSieve(f *testing.F) {
	f.Add("event: error\r\ndata: {\"error\":\""+canary+"\"}\r\n\r\n: ping\n\ndata: [DONE]\n\n", 3)
	f.Add("data: {}\r\rdata: {}\n\r\n", 1)
	f.Add(" {\n\n\"error\":\"sk-canary\"}", 2)
	f.Fuzz(func(t *testing.T, text string, n int) {
		whole, _ := broker.ScrubErrors([]byte(text), max(len(text), 1), canary)
		pieces, held := broker.ScrubErrors([]byte(text), max(n, 1), canary)
		got := strings.Join(pieces, "")
		if got != strings.Join(whole, "") {
			t.Errorf("whole %q, in pieces %q", whole, pieces)
		}
		if scrubbed := (redact.Secrets{canary}).Text(text); scrubbed == text && len(text) < broker.MaxErrorBody && got != text {
			t.Errorf("got %q for %q", got, text)
		}
		if held > broker.MaxErrorBody {
			t.Errorf("held %d bytes", held)
		}
	})
}

// A key that a service spells in JSON's escapes or encodes comes out neither of an answer nor of an
// error, whatever the answer is called and however it comes.
func TestAttackSpelledKeyInAnswers(t *testing.T) {
	all, some := "", strings.NewReplacer("s", `\u0073`, "-", `\u002D`, "7", `\u0037`).Replace(canary)
	percent := ""
	for _, c := range canary {
		all += fmt.Sprintf(`\u%04x`, c)
		percent += fmt.Sprintf("%%%02x", c)
	}
	for _, tt := range []struct {
		status        int
		media, format string
	}{
		{200, "application/json", `{"choices":[{"message":{"content":"%s"}}]}`},
		{200, "application/json", `{"err\u006fr":{"message":"%s"}}`},
		{200, "text/event-stream", `data: {"choices":[{"delta":{"content":"%s"}}]}` + "\n\n"},
		{200, "text/event-stream", `data: {"error":{"message":"%s"}}` + "\n\n"},
		{200, "text/event-stream", "event: error\ndata: {\"message\":\ndata: \"%s\"}\n\n"},
		{400, "application/json", `{"error":{"message":"%s"}}`},
		{500, "text/plain", `bad key %s`},
	} {
		for _, key := range []string{all, some, base64.StdEncoding.EncodeToString([]byte("user:" + canary)), percent, hex.EncodeToString([]byte(canary))} {
			for _, n := range []int{1, 9, 1000} {
				text := fmt.Sprintf(tt.format, key)
				h := newHouse(t, broker.Options{}, func(w http.ResponseWriter, r *http.Request) {
					w.Header().Set("Content-Type", tt.media)
					w.WriteHeader(tt.status)
					for rest := text; len(rest) > 0; {
						piece := rest[:min(n, len(rest))]
						rest = rest[len(piece):]
						fmt.Fprint(w, piece)
						_ = http.NewResponseController(w).Flush()
					}
				})
				socket, _ := h.start(broker.Agent{ID: "a"})
				_, answer := h.ask(socket, "{}")
				if strings.Contains(answer, `\u0037`) || strings.Contains(answer, key[10:20]) || !strings.Contains(answer, "[key]") && !strings.Contains(answer, "***") {
					t.Errorf("%d %s in pieces of %d: %s", tt.status, tt.media, n, answer)
				}
			}
		}
	}
}
