package probe

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

// What a prompt asks of the played model: the last of these in a request decides.
const (
	askShort  = "PROBE-SHORT"  // answer in one word
	askLong   = "PROBE-LONG"   // stream numbers for 20 s
	askRecall = "PROBE-RECALL" // say the word of an earlier prompt, wordMark before it
	wordMark  = "PROBE-WORD-"
)

const (
	longCount = 400
	longPause = 50 * time.Millisecond
	// maxRequest bounds a request to the played model, in bytes.
	maxRequest = 32 << 20
)

var word = regexp.MustCompile(wordMark + `([a-z0-9]+)`)

// model plays the services of models on loopback: chat completions and responses as OpenAI speaks
// them, messages as Anthropic does, and generateContent as Gemini does.
type model struct {
	server  *http.Server
	address string
	serving sync.WaitGroup

	mu       sync.Mutex
	dialects map[string]int // how often each was asked
}

// serveModel begins to serve. Its close must be called.
func serveModel() (*model, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	m := &model{address: listener.Addr().String(), dialects: map[string]int{}}
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
	m.serving.Go(func() { _ = m.server.Serve(accept.Retry(listener, zap.NewNop())) }) // until close
	return m, nil
}

func (m *model) close() {
	_ = m.server.Close()
	m.serving.Wait()
}

// environment is what programs of all makes find their models by.
func (m *model) environment() []string {
	url := "http://" + m.address
	return []string{
		"ANTHROPIC_BASE_URL=" + url, "ANTHROPIC_API_KEY=probe", "OPENAI_BASE_URL=" + url + "/v1", "OPENAI_API_BASE=" + url + "/v1", "OPENAI_API_KEY=probe",
		"OPENAI_MODEL=probe", "GOOGLE_GEMINI_BASE_URL=" + url, "GEMINI_API_KEY=probe", "DISABLE_TELEMETRY=1", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1",
	}
}

// asked is the dialect that was spoken most; "" if none was.
func (m *model) asked() (dialect string) {
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
	end(whole string)
}

// dialect makes the stream of an answer.
type dialect func(w http.ResponseWriter, r *http.Request, streamed bool) stream

func (m *model) answer(name string, speak dialect) http.HandlerFunc {
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
		answer := deltas(string(body))
		if schema := asked.schema(); schema != nil { // programs ask for values beside the conversation, about it
			answer = []delta{{text: instance(schema)}}
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
		s.end(whole.String())
	}
}

// request is what is read of a request beside its text.
type request struct {
	Stream           bool `json:"stream"`
	GenerationConfig struct {
		ResponseJSONSchema map[string]any `json:"responseJsonSchema"`
		ResponseSchema     map[string]any `json:"responseSchema"`
	} `json:"generationConfig"`
	ResponseFormat struct {
		JSONSchema struct {
			Schema map[string]any `json:"schema"`
		} `json:"json_schema"`
	} `json:"response_format"`
}

// schema is that of the value which is wanted in the place of text; nil for text.
func (r request) schema() map[string]any {
	for _, schema := range []map[string]any{r.GenerationConfig.ResponseJSONSchema, r.GenerationConfig.ResponseSchema, r.ResponseFormat.JSONSchema.Schema} {
		if schema != nil {
			return schema
		}
	}
	return nil
}

// instance is a value of a schema, as JSON.
func instance(schema map[string]any) string {
	text, err := json.Marshal(valueOf(schema), json.Deterministic(true))
	if err != nil {
		return "{}"
	}
	return string(text)
}

func valueOf(schema map[string]any) any {
	if allowed, ok := schema["enum"].([]any); ok && len(allowed) > 0 {
		return allowed[0]
	}
	kind, _ := schema["type"].(string)
	switch strings.ToLower(kind) {
	case "object":
		value := map[string]any{}
		members, _ := schema["properties"].(map[string]any)
		for name, member := range members {
			if of, ok := member.(map[string]any); ok {
				value[name] = valueOf(of)
			}
		}
		return value
	case "array":
		return []any{}
	case "number", "integer":
		return 1
	case "boolean":
		return false
	default:
		return "a value"
	}
}

type delta struct {
	text  string
	pause time.Duration
}

// deltas is the answer to a request.
func deltas(body string) (all []delta) {
	short, long, recall := strings.LastIndex(body, askShort), strings.LastIndex(body, askLong), strings.LastIndex(body, askRecall)
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

func reply(w http.ResponseWriter, value any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.MarshalWrite(w, value) // whoever asked is gone
}

// events writes server-sent events.
type events struct {
	w        http.ResponseWriter
	streamed bool
}

func (e events) send(name string, value any) {
	if !e.streamed {
		return
	}
	e.w.Header().Set("Content-Type", "text/event-stream")
	if name != "" {
		fmt.Fprintf(e.w, "event: %s\n", name)
	}
	text, ok := value.(string)
	if !ok {
		encoded, _ := json.Marshal(value) // of our own values
		text = string(encoded)
	}
	fmt.Fprintf(e.w, "data: %s\n\n", text)
	if f, ok := e.w.(http.Flusher); ok {
		f.Flush()
	}
}

type object = map[string]any

// chat speaks chat completions.
func chat(w http.ResponseWriter, _ *http.Request, streamed bool) stream {
	return chatStream{events{w, streamed}}
}

type chatStream struct{ events }

func (s chatStream) chunk(delta object, finish any) object {
	return object{
		"id": "probe", "object": "chat.completion.chunk", "created": 1, "model": "probe",
		"choices": []any{object{"index": 0, "delta": delta, "finish_reason": finish}},
	}
}

func (s chatStream) begin()            { s.send("", s.chunk(object{"role": "assistant", "content": ""}, nil)) }
func (s chatStream) text(delta string) { s.send("", s.chunk(object{"content": delta}, nil)) }

func (s chatStream) end(whole string) {
	usage := object{"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
	if !s.streamed {
		reply(s.w, object{
			"id": "probe", "object": "chat.completion", "created": 1, "model": "probe", "usage": usage,
			"choices": []any{object{"index": 0, "message": object{"role": "assistant", "content": whole}, "finish_reason": "stop"}},
		})
		return
	}
	last := s.chunk(object{}, "stop")
	last["usage"] = usage
	s.send("", last)
	s.send("", "[DONE]")
}

// messages speaks Anthropic's messages.
func messages(w http.ResponseWriter, _ *http.Request, streamed bool) stream {
	return messageStream{events{w, streamed}}
}

type messageStream struct{ events }

func (s messageStream) message(content []any) object {
	return object{
		"id": "msg_probe", "type": "message", "role": "assistant", "model": "probe", "content": content, "stop_reason": nil, "stop_sequence": nil,
		"usage": object{"input_tokens": 10, "output_tokens": 1},
	}
}

func (s messageStream) begin() {
	s.send("message_start", object{"type": "message_start", "message": s.message([]any{})})
	s.send("content_block_start", object{"type": "content_block_start", "index": 0, "content_block": object{"type": "text", "text": ""}})
}

func (s messageStream) text(delta string) {
	s.send("content_block_delta", object{"type": "content_block_delta", "index": 0, "delta": object{"type": "text_delta", "text": delta}})
}

func (s messageStream) end(whole string) {
	if !s.streamed {
		m := s.message([]any{object{"type": "text", "text": whole}})
		m["stop_reason"] = "end_turn"
		reply(s.w, m)
		return
	}
	s.send("content_block_stop", object{"type": "content_block_stop", "index": 0})
	s.send("message_delta", object{"type": "message_delta", "delta": object{"stop_reason": "end_turn", "stop_sequence": nil}, "usage": object{"output_tokens": 5}})
	s.send("message_stop", object{"type": "message_stop"})
}

// responses speaks OpenAI's responses.
func responses(w http.ResponseWriter, _ *http.Request, streamed bool) stream {
	return &responseStream{events: events{w, streamed}}
}

type responseStream struct {
	events
	number int
}

func (s *responseStream) step(name string, members object) {
	members["type"], members["sequence_number"] = name, s.number
	s.number++
	s.send(name, members)
}

func (s *responseStream) response(status string, output []any) object {
	return object{
		"id": "resp_probe", "object": "response", "created_at": 1, "status": status, "model": "probe", "output": output, "tools": []any{},
		"parallel_tool_calls": true, "tool_choice": "auto",
		"usage": object{
			"input_tokens": 10, "output_tokens": 5, "total_tokens": 15,
			"input_tokens_details": object{"cached_tokens": 0}, "output_tokens_details": object{"reasoning_tokens": 0},
		},
	}
}

func (s *responseStream) item(status string, content []any) object {
	return object{"id": "msg_probe", "type": "message", "status": status, "role": "assistant", "content": content}
}

func (s *responseStream) begin() {
	s.step("response.created", object{"response": s.response("in_progress", []any{})})
	s.step("response.output_item.added", object{"output_index": 0, "item": s.item("in_progress", []any{})})
	s.step("response.content_part.added", object{"item_id": "msg_probe", "output_index": 0, "content_index": 0, "part": object{"type": "output_text", "text": "", "annotations": []any{}}})
}

func (s *responseStream) text(delta string) {
	s.step("response.output_text.delta", object{"item_id": "msg_probe", "output_index": 0, "content_index": 0, "delta": delta})
}

func (s *responseStream) end(whole string) {
	part := object{"type": "output_text", "text": whole, "annotations": []any{}}
	item := s.item("completed", []any{part})
	if !s.streamed {
		reply(s.w, s.response("completed", []any{item}))
		return
	}
	s.step("response.output_text.done", object{"item_id": "msg_probe", "output_index": 0, "content_index": 0, "text": whole})
	s.step("response.content_part.done", object{"item_id": "msg_probe", "output_index": 0, "content_index": 0, "part": part})
	s.step("response.output_item.done", object{"output_index": 0, "item": item})
	s.step("response.completed", object{"response": s.response("completed", []any{item})})
}

// gemini speaks generateContent.
func gemini(w http.ResponseWriter, _ *http.Request, streamed bool) stream {
	return geminiStream{events{w, streamed}}
}

type geminiStream struct{ events }

func (s geminiStream) part(text string, finish bool) object {
	candidate := object{"index": 0, "content": object{"role": "model", "parts": []any{object{"text": text}}}}
	if finish {
		candidate["finishReason"] = "STOP"
	}
	return object{
		"candidates": []any{candidate}, "modelVersion": "probe",
		"usageMetadata": object{"promptTokenCount": 10, "candidatesTokenCount": 5, "totalTokenCount": 15},
	}
}

func (s geminiStream) begin()            {}
func (s geminiStream) text(delta string) { s.send("", s.part(delta, false)) }

func (s geminiStream) end(whole string) {
	if !s.streamed {
		reply(s.w, s.part(whole, true))
		return
	}
	s.send("", s.part("", true))
}
