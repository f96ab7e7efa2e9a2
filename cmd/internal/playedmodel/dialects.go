package playedmodel

import (
	"crypto/rand"
	"fmt"
	"net/http"

	"github.com/go-json-experiment/json"
)

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

func (s chatStream) end(whole string, c *call) {
	usage := object{"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
	message, reason := object{"role": "assistant", "content": whole}, "stop"
	if c != nil {
		reason = "tool_calls"
		message["tool_calls"] = []any{object{
			"index": 0, "id": callID(), "type": "function", "function": object{"name": c.name, "arguments": c.arguments()},
		}}
	}
	if !s.streamed {
		reply(s.w, object{
			"id": "probe", "object": "chat.completion", "created": 1, "model": "probe", "usage": usage,
			"choices": []any{object{"index": 0, "message": message, "finish_reason": reason}},
		})
		return
	}
	if delete(message, "content"); c != nil {
		s.send("", s.chunk(message, nil))
	}
	last := s.chunk(object{}, reason)
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

func (s messageStream) end(whole string, c *call) {
	content, reason, id := []any{object{"type": "text", "text": whole}}, "end_turn", callID()
	if c != nil {
		content, reason = append(content, object{"type": "tool_use", "id": id, "name": c.name, "input": c.input}), "tool_use"
	}
	if !s.streamed {
		m := s.message(content)
		m["stop_reason"] = reason
		reply(s.w, m)
		return
	}
	s.send("content_block_stop", object{"type": "content_block_stop", "index": 0})
	if c != nil {
		s.send("content_block_start", object{"type": "content_block_start", "index": 1, "content_block": object{"type": "tool_use", "id": id, "name": c.name, "input": object{}}})
		s.send("content_block_delta", object{"type": "content_block_delta", "index": 1, "delta": object{"type": "input_json_delta", "partial_json": c.arguments()}})
		s.send("content_block_stop", object{"type": "content_block_stop", "index": 1})
	}
	s.send("message_delta", object{"type": "message_delta", "delta": object{"stop_reason": reason, "stop_sequence": nil}, "usage": object{"output_tokens": 5}})
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

func (s *responseStream) end(whole string, c *call) {
	part := object{"type": "output_text", "text": whole, "annotations": []any{}}
	item := s.item("completed", []any{part})
	output := []any{item}
	if c != nil {
		output = append(output, object{
			"type": "function_call", "id": "fc_probe", "call_id": callID(), "name": c.name, "arguments": c.arguments(), "status": "completed",
		})
	}
	if !s.streamed {
		reply(s.w, s.response("completed", output))
		return
	}
	s.step("response.output_text.done", object{"item_id": "msg_probe", "output_index": 0, "content_index": 0, "text": whole})
	s.step("response.content_part.done", object{"item_id": "msg_probe", "output_index": 0, "content_index": 0, "part": part})
	s.step("response.output_item.done", object{"output_index": 0, "item": item})
	if c != nil {
		s.step("response.output_item.added", object{"output_index": 1, "item": output[1]})
		s.step("response.function_call_arguments.done", object{"item_id": "fc_probe", "output_index": 1, "arguments": c.arguments()})
		s.step("response.output_item.done", object{"output_index": 1, "item": output[1]})
	}
	s.step("response.completed", object{"response": s.response("completed", output)})
}

// gemini speaks generateContent.
func gemini(w http.ResponseWriter, _ *http.Request, streamed bool) stream {
	return geminiStream{events{w, streamed}}
}

type geminiStream struct{ events }

func (s geminiStream) part(text string, c *call, finish bool) object {
	parts := []any{object{"text": text}}
	if c != nil { // alone: Gemini's program forgets a message with an empty part
		parts = []any{object{"functionCall": object{"name": c.name, "args": c.input}}}
		if text != "" {
			parts = append([]any{object{"text": text}}, parts...)
		}
	}
	candidate := object{"index": 0, "content": object{"role": "model", "parts": parts}}
	if finish {
		candidate["finishReason"] = "STOP"
	}
	return object{
		"candidates": []any{candidate}, "modelVersion": "probe",
		"usageMetadata": object{"promptTokenCount": 10, "candidatesTokenCount": 5, "totalTokenCount": 15},
	}
}

func (s geminiStream) begin()            {}
func (s geminiStream) text(delta string) { s.send("", s.part(delta, nil, false)) }

func (s geminiStream) end(whole string, c *call) {
	if !s.streamed {
		reply(s.w, s.part(whole, c, true))
		return
	}
	s.send("", s.part("", c, true))
}

// callID is one that no other call has.
func callID() string { return "call_" + rand.Text() }
