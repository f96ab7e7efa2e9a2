package agents

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// model plays Anthropic's service. What it answers follows from the last prompt alone: "remember"
// tells all prompts of the conversation, "run COMMAND" calls the agent's tool for commands and then
// tells its result, "talk" says words for ever, and everything else is said back.
type model struct {
	*httptest.Server
	ids  atomic.Int64
	sent atomic.Int64 // bytes of text
}

func serve() *model {
	m := &model{}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/messages", m.messages)
	mux.HandleFunc("POST /v1/messages/count_tokens", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"input_tokens":10}`) })
	m.Server = httptest.NewServer(mux)
	return m
}

type object = map[string]any

// request is what is read of one.
type request struct {
	Model    string
	Messages []struct {
		Role    string
		Content json.RawMessage
	}
	Tools []struct{ Name string }
}

type block struct {
	Type, Text string
	Content    json.RawMessage
}

func blocks(content json.RawMessage) (all []block) {
	var text string
	if json.Unmarshal(content, &text) == nil {
		return []block{{Type: "text", Text: text}}
	}
	_ = json.Unmarshal(content, &all) // what is no list of blocks has no text
	return all
}

// prompts are those of the conversation, and the result of a call if that is the last message.
func (r request) prompts() (all []string, result string) {
	for _, m := range r.Messages {
		result = ""
		for _, b := range blocks(m.Content) {
			switch {
			case b.Type == "tool_result":
				for _, part := range blocks(b.Content) {
					result += part.Text
				}
			case b.Type == "text" && m.Role == "user" && !strings.HasPrefix(b.Text, "<system-reminder>"):
				all = append(all, b.Text)
			}
		}
	}
	return all, result
}

// shells are the agents' tools for commands.
var shells = []string{"Bash", "bash"}

// events are server-sent events.
type events struct{ w http.ResponseWriter }

func (e events) send(name string, data object) {
	data["type"] = name
	text, _ := json.Marshal(data) // of maps and strings
	fmt.Fprintf(e.w, "event: %s\ndata: %s\n\n", name, text)
	_ = http.NewResponseController(e.w).Flush() // a client that is gone has ended the request's context
}

func (m *model) messages(w http.ResponseWriter, r *http.Request) {
	var asked request
	if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	prompts, result := asked.prompts()
	last := ""
	if len(prompts) > 0 {
		last = strings.TrimSpace(prompts[len(prompts)-1])
	}
	w.Header().Set("Content-Type", "text/event-stream")
	e := events{w}
	e.send("message_start", object{"message": object{
		"id": fmt.Sprintf("msg_%d", m.ids.Add(1)), "type": "message", "role": "assistant", "model": asked.Model, "content": []any{},
		"stop_reason": nil, "stop_sequence": nil, "usage": object{"input_tokens": 10, "output_tokens": 1},
	}})
	e.send("content_block_start", object{"index": 0, "content_block": object{"type": "text", "text": ""}})
	say := func(text string) {
		m.sent.Add(int64(len(text)))
		e.send("content_block_delta", object{"index": 0, "delta": object{"type": "text_delta", "text": text}})
	}
	command, runs := strings.CutPrefix(last, "run ")
	tool := slices.IndexFunc(asked.Tools, func(t struct{ Name string }) bool { return slices.Contains(shells, t.Name) })
	runs = runs && result == "" && tool >= 0
	switch {
	case result != "":
		say("result: " + result)
	case runs:
		say("I run it. ")
	case last == "talk":
		talk(r.Context(), say)
	case last == "remember":
		say("prompts: ")
		say(strings.Join(prompts, " | "))
	default:
		say("you said: ")
		say(last)
	}
	e.send("content_block_stop", object{"index": 0})
	stop := "end_turn"
	if runs {
		stop = "tool_use"
		input, _ := json.Marshal(object{"command": command, "description": "what was asked for"}) // of strings
		e.send("content_block_start", object{"index": 1, "content_block": object{
			"type": "tool_use", "id": fmt.Sprintf("toolu_%d", m.ids.Add(1)), "name": asked.Tools[tool].Name, "input": object{},
		}})
		e.send("content_block_delta", object{"index": 1, "delta": object{"type": "input_json_delta", "partial_json": string(input)}})
		e.send("content_block_stop", object{"index": 1})
	}
	e.send("message_delta", object{"delta": object{"stop_reason": stop, "stop_sequence": nil}, "usage": object{"output_tokens": 5}})
	e.send("message_stop", object{})
}

// talk says words, as fast as a model does, until nobody listens.
func talk(ctx context.Context, say func(string)) {
	ticks := time.NewTicker(5 * time.Millisecond)
	defer ticks.Stop()
	for n := 1; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
			say(fmt.Sprintf("word%d ", n))
		}
	}
}
