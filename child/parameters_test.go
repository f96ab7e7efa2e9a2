package child_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"testing"

	"nexus.internal/child"
	"nexus.internal/child/provider"
	"nexus.internal/protocol"
)

// teller is a provider that tells what it was asked with.
type teller struct{}

func (teller) Stream(_ context.Context, r provider.Request) iter.Seq2[provider.Delta, error] {
	return func(yield func(provider.Delta, error) bool) {
		told := fmt.Sprintf("%d tools", len(r.Tools))
		if p := r.Parameters; p != nil {
			told += fmt.Sprintf(", %d tokens, effort %s", p.MaxOutput, p.Effort)
			if p.Temperature != nil {
				told += fmt.Sprintf(", temperature %v", *p.Temperature)
			}
		}
		_ = yield(provider.Text{Text: told}, nil) && yield(provider.Stop{Usage: protocol.TurnUsage{InputTokens: 10, OutputTokens: 2}}, nil)
	}
}

func (teller) Models(context.Context) ([]protocol.Model, error) { return nil, nil }

// unreachable is a provider whose service is down.
type unreachable struct{ teller }

func (unreachable) Stream(context.Context, provider.Request) iter.Seq2[provider.Delta, error] {
	return func(yield func(provider.Delta, error) bool) {
		yield(nil, &provider.Error{Brief: "503", Reason: protocol.Unreachable, Err: errors.New("503")})
	}
}

// tellers are models: a, unable, and down.
type tellers struct{ catalogue }

func (tellers) Select(model, _ string) (child.Selected, error) {
	s := child.Selected{Provider: teller{}, ProviderName: "t", Model: model, ContextWindow: 100_000, Offline: true}
	switch model {
	case "a":
	case "unable":
		s.MaxOutput, s.NoReasoning, s.NoTools = 100, true, true
	case "down":
		s.Provider = unreachable{}
	default:
		return s, errors.New("there is no such model")
	}
	return s, nil
}

func (tellers) Price(name string) (protocol.Price, bool) {
	return protocol.Price{Input: 100_000, Output: 100_000}, name == "t/a"
}

// Nobody gives a tool call more time than its owner's bound.
func TestToolBound(t *testing.T) {
	o := options()
	o.ToolBound = 60
	play(t, o, []string{
		`> {"type":"set_settings","id":"1","settings":{"tool_timeout_s":3600}}`, `< {"id":"1","ok":true,"settings":{"tool_timeout_s":60}}`,
		`> {"type":"set_settings","id":"2","settings":{"tool_timeout_s":5}}`, `< {"id":"2","ok":true,"settings":{"tool_timeout_s":5}}`,
		`> {"type":"set_settings","id":"3","settings":{"tool_timeout_s":0}}`, `< {"id":"3","ok":true,"settings":{"tool_timeout_s":60}}`,
		`> {"type":"prompt","id":"4","message":"tool stuck"}`,
		`< {"event":{"type":"toolcall_start"}}`, `< {"event":{"type":"toolcall_input_delta"}}`, `< {"event":{"type":"toolcall_input"}}`,
		`< {"event":{"type":"toolcall_result","result":"sleep: not done after 1m0s"}}`, `< {"event":{"type":"text_delta"}}`, `< {"type":"agent_end"}`, `< {"type":"response"}`,
	})
}

// A request has what the settings say, as far as the model is known to be able to; and where its
// service is down, another model answers, at its own price.
func TestParameters(t *testing.T) {
	o := options()
	o.Models, o.SessionUpdates = tellers{}, false
	o.Start, _ = tellers{}.Select("a", "")
	asked := func(id, told, usage string) []string {
		return []string{
			`> {"type":"prompt","id":"` + id + `","message":"x"}`, `< {"event":{"type":"text_delta","delta":"` + told + `"}}`,
			`< {"type":"agent_end","usage":` + usage + `}`, `< {"type":"response","id":"` + id + `","ok":true}`,
		}
	}
	script := asked("1", "1 tools", `{"cost":1.2}`)
	script = append(script,
		`> {"type":"set_settings","id":"s","settings":{"temperature":0.5,"max_output_tokens":900,"reasoning_effort":"low"}}`, `< {"id":"s","ok":true}`)
	script = append(script, asked("2", "1 tools, 900 tokens, effort low, temperature 0.5", `{"cost":1.2}`)...)
	script = append(script, `> {"type":"set_model","id":"m","model":"unable"}`, `< {"id":"m","ok":true}`)
	script = append(script, asked("3", "0 tools, 100 tokens, effort , temperature 0.5", `{"model":"unable"}`)...)
	script = append(script, `> {"type":"set_model","id":"m","model":"down"}`, `< {"id":"m","ok":true}`,
		`> {"type":"set_settings","id":"s","settings":{"fallback_model":"a"}}`, `< {"id":"s","ok":true}`)
	script = append(script, asked("4", "1 tools, 900 tokens, effort low, temperature 0.5", `{"cost":1.2}`)...)
	script = append(script, `> {"type":"set_settings","id":"s","settings":{"fallback_model":""}}`, `< {"id":"s","ok":true}`,
		`> {"type":"prompt","id":"5","message":"x"}`, `< {"type":"error","id":"5","message":"503"}`,
		`< {"type":"agent_end","stop_reason":"error"}`, `< {"type":"response","id":"5","ok":false,"reason":"unreachable"}`)
	play(t, o, script)
}
