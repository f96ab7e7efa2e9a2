package playedmodel

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"go.uber.org/zap"

	"nexus.internal/protocol/accept"
)

// What a prompt asks of the model: the last of these in a request decides.
const (
	Short    = "PROBE-SHORT"  // answer in one word
	Long     = "PROBE-LONG"   // stream numbers for 20 s
	Recall   = "PROBE-RECALL" // say the word of an earlier prompt, WordMark before it
	WordMark = "PROBE-WORD-"
	Run      = "PROBE-RUN" // call the tool for commands with [Command], once in a conversation, and answer in one word then
)

// Command is what is run. It makes a file.
const Command = "echo probe-called >" + Made

// Made is the file.
const Made = "made-by-probe"

const (
	longCount = 400
	longPause = 50 * time.Millisecond
	// maxRequest bounds a request to the played model, in bytes.
	maxRequest = 32 << 20
)

var word = regexp.MustCompile(WordMark + `([a-z0-9]+)`)

// Player plays the services.
type Player struct {
	server  *http.Server
	address string
	serving sync.WaitGroup

	mu       sync.Mutex
	dialects map[string]int // how often each was asked
}

// New begins to serve. Close must be called.
func New() (*Player, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	m := &Player{address: listener.Addr().String(), dialects: map[string]int{}}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/chat/completions", m.answer("openai chat", chat))
	mux.HandleFunc("POST /v1/responses", m.answer("openai responses", responses))
	mux.HandleFunc("POST /v1/messages", m.answer("anthropic", messages))
	mux.HandleFunc("POST /v1/messages/count_tokens", func(w http.ResponseWriter, _ *http.Request) { reply(w, map[string]any{"input_tokens": 10}) })
	mux.HandleFunc("POST /v1beta/models/", m.answer("gemini", gemini))
	mux.HandleFunc("GET /", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, map[string]any{"object": "list", "data": []any{map[string]any{"id": "probe", "object": "model"}}, "models": []any{}})
	})
	m.server = &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	m.serving.Go(func() { _ = m.server.Serve(accept.Retry(listener, zap.NewNop())) }) // until Close
	return m, nil
}

// Close ends all answers.
func (m *Player) Close() {
	_ = m.server.Close()
	m.serving.Wait()
}

// URL is where it serves.
func (m *Player) URL() string { return "http://" + m.address }

// Environment is what programs of all makes find their models by.
func (m *Player) Environment() []string {
	url := m.URL()
	return []string{
		"ANTHROPIC_BASE_URL=" + url, "ANTHROPIC_API_KEY=probe", "OPENAI_BASE_URL=" + url + "/v1", "OPENAI_API_BASE=" + url + "/v1", "OPENAI_API_KEY=probe",
		"OPENAI_MODEL=probe", "GOOGLE_GEMINI_BASE_URL=" + url, "GEMINI_API_KEY=probe", "DISABLE_TELEMETRY=1", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1",
	}
}

// Asked is the dialect that was spoken most; "" if none was.
func (m *Player) Asked() (dialect string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, n := range m.dialects {
		if n > m.dialects[dialect] {
			dialect = name
		}
	}
	return dialect
}

// stream writes one answer in a dialect: all of it at once if the request does not want a stream.
type stream interface {
	begin()
	text(delta string)
	// end ends the answer, with a call unless that is nil.
	end(whole string, c *call)
}

// dialect makes the stream of an answer.
type dialect func(w http.ResponseWriter, r *http.Request, streamed bool) stream

func (m *Player) answer(name string, speak dialect) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxRequest))
		if err != nil {
			http.Error(w, err.Error(), http.StatusRequestEntityTooLarge)
			return
		}
		m.mu.Lock()
		m.dialects[name]++
		m.mu.Unlock()
		var asked request
		_ = json.Unmarshal(body, &asked) // what is no JSON wants no stream
		streamed := asked.Stream || strings.Contains(r.URL.Path, ":streamGenerateContent")
		s := speak(w, r, streamed)
		s.begin()
		var whole strings.Builder
		answer, c := deltas(string(body)), asked.call(string(body))
		if schema := asked.schema(); schema != nil { // programs ask for values beside the conversation, about it
			answer, c = []delta{{text: instance(schema)}}, nil
		}
		for _, delta := range answer {
			if streamed && len(delta.text) > 0 && delta.pause > 0 {
				select {
				case <-time.After(delta.pause):
				case <-r.Context().Done():
					return
				}
			}
			whole.WriteString(delta.text)
			s.text(delta.text)
		}
		s.end(whole.String(), c)
	}
}

type delta struct {
	text  string
	pause time.Duration
}

// deltas is the answer to a request.
func deltas(body string) (all []delta) {
	short, long, recall := strings.LastIndex(body, Short), strings.LastIndex(body, Long), strings.LastIndex(body, Recall)
	short = max(short, strings.LastIndex(body, Run))
	switch {
	case long > max(short, recall):
		for n := range longCount {
			all = append(all, delta{fmt.Sprintf("%d ", n+1), longPause})
		}
	case recall > max(short, long):
		said := "unknown"
		if found := word.FindStringSubmatch(body); found != nil {
			said = found[1]
		}
		all = []delta{{text: said}}
	default:
		all = []delta{{text: "Understood."}}
	}
	return all
}
