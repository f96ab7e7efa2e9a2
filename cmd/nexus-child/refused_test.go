package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tidwall/gjson"
)

const openAIAnswer = `data: {"choices":[{"index":0,"delta":{"content":"fine"},"finish_reason":null}]}

data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":{"prompt_tokens":5,"completion_tokens":1}}

data: [DONE]

`

const openAICall = `data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"c1","type":"function","function":{"name":"list_directory","arguments":"{}"}}]},"finish_reason":null}]}

data: {"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}],"usage":{"prompt_tokens":5,"completion_tokens":1}}

data: [DONE]

`

const openAIFiltered = `data: {"choices":[{"index":0,"delta":{},"finish_reason":"content_filter"}]}

data: [DONE]

`

const anthropicAnswer = `event: message_start
data: {"type":"message_start","message":{"id":"m","type":"message","role":"assistant","content":[],"model":"m","usage":{"input_tokens":5,"output_tokens":1}}}

event: content_block_start
data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"fine"}}

event: content_block_stop
data: {"type":"content_block_stop","index":0}

event: message_delta
data: {"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":1}}

event: message_stop
data: {"type":"message_stop"}

`

// squeamish is a service that refuses each request with a certain word, in one of several ways.
func squeamish(t *testing.T, answer string) *httptest.Server {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		last := gjson.GetBytes(body, "messages|@reverse|0").Raw
		refuse := func(status int, text string) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			fmt.Fprint(w, text)
		}
		switch text := string(body); {
		case strings.Contains(text, "poison"):
			refuse(http.StatusBadRequest, `{"error":{"message":"this is not wanted","type":"invalid_request_error","code":"content_policy_violation"}}`)
		case strings.Contains(text, "giant"):
			refuse(http.StatusRequestEntityTooLarge, `{"error":{"message":"this is too large"}}`)
		case strings.Contains(text, "in the dark"):
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprint(w, openAIFiltered)
		case strings.Contains(last, "no service"):
			refuse(http.StatusInternalServerError, `{"error":{"message":"down"}}`)
		case strings.Contains(last, "use a tool"):
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprint(w, openAICall)
		default:
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprint(w, answer)
		}
	}))
	t.Cleanup(server.Close)
	return server
}

// A prompt that the service refuses is left out of later requests, also after a kill, a compaction
// and for a turn that called tools before; it stays in the conversation, marked. What fails for
// another reason is sent again with the next prompt.
func TestRefusedTurnIsLeftOut(t *testing.T) {
	for name, tt := range map[string]struct{ kind, answer string }{"openai": {"openai", openAIAnswer}, "anthropic": {"anthropic", anthropicAnswer}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			home := t.TempDir()
			server := squeamish(t, tt.answer)
			config := fmt.Sprintf(`{"providers":{"it":{"type":%q,"base_url":%q,"auth_method":"none","models":[{"id":"m"}]}},"default_model":"it/m"}`, tt.kind, server.URL)
			if err := os.WriteFile(filepath.Join(home, "config.json"), []byte(config), 0o600); err != nil {
				t.Fatal(err)
			}
			work := t.TempDir()
			if err := os.WriteFile(filepath.Join(work, "poison"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			args := []string{"--session-dir", filepath.Join(home, "sessions"), "--cwd", work}
			p := startChild(t, home, append(args, "--session", "s")...)
			n := 0
			ask := func(message string) (answered bool) {
				n++
				id := fmt.Sprintf("p%d", n)
				p.send(fmt.Sprintf(`{"type":"prompt","id":%q,"message":%q}`, id, message))
				return p.want("type", "response").Get("ok").Bool()
			}
			leftOut := func() (marked string) {
				n++
				id := fmt.Sprintf("g%d", n)
				p.send(`{"type":"get_messages","id":"` + id + `"}`)
				for _, m := range p.want("id", id).Get("messages").Array() {
					if m.Get("left_out").Bool() {
						marked += m.Get("role").Str + " "
					}
				}
				return strings.TrimSpace(marked)
			}
			wants := []string{"poison", "a giant"}
			if tt.kind == "openai" {
				wants = append(wants, "in the dark", "use a tool")
			}
			for _, message := range wants {
				if ask(message) {
					t.Errorf("%q was answered", message)
				}
				if !ask("go on") {
					t.Errorf("after %q nothing is answered", message)
				}
			}
			marked := "user user"
			if tt.kind == "openai" {
				marked += " user user assistant tool"
			}
			if got := leftOut(); got != marked {
				t.Errorf("left out are %s, want %s", got, marked)
			}
			if ask("poison"); p.cmd.Process.Kill() != nil {
				t.Fatal("it was gone")
			}
			p.wait()
			p = startChild(t, home, append(args, "--continue", "s")...)
			if got := leftOut(); got != marked+" user" {
				t.Errorf("after a kill left out are %s, want %s user", got, marked)
			}
			if !ask("go on") || !ask("and on") {
				t.Error("after a kill nothing is answered")
			}
			p.send(`{"type":"compact","id":"c"}`)
			if got := p.want("id", "c"); !got.Get("compacted").Bool() || got.Get("by").Str != "model" || strings.Contains(got.Get("summary").Str, "poison") {
				t.Errorf("compact: %s", got)
			}
			if ask("poison"); !ask("go on") {
				t.Error("after a compaction nothing is answered")
			}
			p.send(`{"type":"compact","id":"d","force":true}`)
			p.want("id", "d")
			if ask("poison"); p.cmd.Process.Kill() != nil {
				t.Fatal("it was gone")
			}
			p.wait()
			p = startChild(t, home, append(args, "--continue", "s")...)
			if !ask("go on") {
				t.Error("after a compaction and a kill nothing is answered")
			}
			if got := leftOut(); got != "user" {
				t.Errorf("in the end left out are %s, want one", got)
			}
			p.stdin.Close()
			p.wait()
		})
	}
}
