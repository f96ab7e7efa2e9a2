package client

import (
	"context"
	"fmt"
	"io"
	"iter"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/tidwall/gjson"

	"nexus.internal/bridge/api"
	"nexus.internal/protocol"
	"nexus.internal/protocol/strict"
)

// connected is the type of an event that stands before what a connection tells.
const connected = ""

// stream calls a method that tells what it does, tries again like Call, and gives to tell
// what comes on each connection, after an event connected. It ends with the result, or an
// error; with neither (ok is false) where tell wants no more.
func stream[P, R any](
	ctx context.Context, c *Client, agent string, m api.Def[P, R], params P, tell func(Event) (more bool, err error),
) (result R, ok bool, err error) {
	raw, repeatable, err := encode(m.Name, params)
	if err != nil {
		return result, false, err
	}
	err = c.again(ctx, repeatable, func() error {
		response, err := c.post(ctx, pathOf(m.Scope, agent), m.Name, raw, "text/event-stream, application/json")
		if err != nil {
			return err
		}
		defer response.Body.Close()
		body := c.hear(response.Body)
		defer body.Close()
		if more, err := tell(Event{Type: connected}); !more || err != nil {
			return err
		}
		if !isStream(response) {
			err := finish(ctx, m.Name, response, &result)
			ok = err == nil
			return err
		}
		for event, err := range readEvents(body) {
			if err != nil {
				return fmt.Errorf("call %s: read the stream: %w", m.Name, broken(ctx, err))
			}
			if event.Type == "response" {
				err := decode(m.Name, event.Data, response.StatusCode, &result)
				ok = err == nil
				return err
			}
			if event.bare(nil) {
				continue
			}
			if more, err := tell(event); !more || err != nil {
				return err
			}
		}
		return io.ErrUnexpectedEOF // readEvents ends with an error
	})
	return result, ok, err
}

// CallStream is Call for a method that may stream: tell gets each notification, on one line, before
// the result is there; an error of it ends the call. agent is "" for a method that is called
// globally. After a connection that broke, the notifications may come again from the first.
func (c *Client) CallStream(ctx context.Context, agent, method string, params any, tell func(notification jsontext.Value) error) (jsontext.Value, error) {
	m := api.Def[any, jsontext.Value]{Name: method, Scope: api.Global}
	if agent != "" {
		m.Scope = api.Agent
	}
	result, _, err := stream(ctx, c, agent, m, params, func(event Event) (bool, error) {
		if event.Type == connected {
			return true, nil
		}
		return true, tell(event.Data)
	})
	return result, err
}

// SendStream sends a message and gives the answer as it comes, from the goroutine
// that ranges over it; to leave earlier ends no turn. The texts joined, since the
// last restart, are the result's content. The last pair is the result or an error.
// It is tried again like Call.
func (c *Client) SendStream(ctx context.Context, id string, p api.SendParams) iter.Seq2[Part, error] {
	return func(yield func(Part, error) bool) {
		said := false // there was text since the last restart
		result, ok, err := stream(ctx, c, id, api.Send, p, func(event Event) (bool, error) {
			switch event.Type {
			case connected:
				if !said {
					return true, nil
				}
				fallthrough
			case api.StreamRestart:
				said = false
				return yield(Restart{}, nil), nil
			case api.StreamData:
				var data struct { // of api.StreamDataParams only what is used here
					Params struct {
						Chunk string `json:"chunk"`
					} `json:"params"`
				}
				if err := strict.Unmarshal(event.Data, &data, strict.IgnoreUnknown); err != nil {
					return false, fmt.Errorf("call send: read a chunk: %w", err)
				}
				said = true
				return yield(Text(data.Params.Chunk), nil), nil
			}
			return true, nil
		})
		switch text := protocol.Value(result.Content); {
		case err != nil:
			yield(nil, err)
		case !ok, !said && text != "" && !yield(Text(text), nil): // a turn that had ended before has no stream
		default:
			yield(Result(result), nil)
		}
	}
}

// RunPlanStream carries out a plan and gives what it tells as it comes, from the
// goroutine that ranges over it; to leave earlier ends no run. The last pair is
// the result or an error. It is tried again like Call if p has a RequestID; then
// the run is sent from its start again, by another api.PlanStart.
func (c *Client) RunPlanStream(ctx context.Context, p api.RunPlanParams) iter.Seq2[PlanPart, error] {
	return func(yield func(PlanPart, error) bool) {
		result, ok, err := stream(ctx, c, "", api.RunPlan, p, func(event Event) (bool, error) {
			if event.Type == connected {
				return true, nil
			}
			part, err := planPart(event.Type, jsontext.Value(gjson.GetBytes(event.Data, "params").Raw))
			return err == nil && yield(part, nil), err
		})
		switch {
		case err != nil:
			yield(nil, err)
		case ok:
			yield(PlanResult(result), nil)
		}
	}
}
