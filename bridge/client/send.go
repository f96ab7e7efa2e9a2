package client

import (
	"context"
	"fmt"
	"iter"
	"net/http"

	"nexus.internal/bridge/api"
	"nexus.internal/protocol"
	"nexus.internal/protocol/strict"
)

// SendStream sends a message and gives the answer as it comes, from the goroutine
// that ranges over it; to leave earlier ends no turn. The texts joined, since the
// last restart, are the result's content. The last pair is the result or an error.
// It is tried again like Call.
func (c *Client) SendStream(ctx context.Context, id string, p api.SendParams) iter.Seq2[Part, error] {
	return func(yield func(Part, error) bool) {
		raw, repeatable, err := encode("send", p)
		if err != nil {
			yield(nil, err)
			return
		}
		a := answer{yield: yield}
		err = c.again(ctx, repeatable, func() error {
			response, err := c.post(ctx, AgentPath(id), "send", raw, "text/event-stream, application/json")
			if err != nil {
				return err
			}
			defer response.Body.Close()
			return a.read(ctx, response)
		})
		if err != nil {
			yield(nil, err)
		}
	}
}

// answer hands on a streamed answer, which may come in several connections.
type answer struct {
	yield func(Part, error) bool
	said  bool // there was text since the last restart
}

// read takes one connection's part of it. Nil is the end, also where the caller
// left.
func (a *answer) read(ctx context.Context, response *http.Response) error {
	if a.said && !a.restart() {
		return nil
	}
	if !isStream(response) {
		var result api.SendResult
		if err := finish(ctx, "send", response, &result); err != nil {
			return err
		}
		a.end(result)
		return nil
	}
	for event, err := range readEvents(response.Body) {
		if err != nil {
			return fmt.Errorf("call send: read the stream: %w", broken(ctx, err))
		}
		switch event.Type {
		case api.StreamData:
			var data struct { // of api.StreamDataParams only what is used here
				Params struct {
					Chunk string `json:"chunk"`
				} `json:"params"`
			}
			if err := strict.Unmarshal(event.Data, &data, strict.IgnoreUnknown); err != nil {
				return fmt.Errorf("call send: read a chunk: %w", err)
			}
			a.said = true
			if !a.yield(Text(data.Params.Chunk), nil) {
				return nil
			}
		case api.StreamRestart:
			if !a.restart() {
				return nil
			}
		case "response":
			var result api.SendResult
			if err := decode("send", event.Data, response.StatusCode, &result); err != nil {
				return err
			}
			a.end(result)
			return nil
		}
	}
	return nil
}

func (a *answer) restart() bool {
	a.said = false
	return a.yield(Restart{}, nil)
}

// end gives the result, and before it the text of a turn that had ended before and
// so had no stream.
func (a *answer) end(result api.SendResult) {
	if text := protocol.Value(result.Content); !a.said && text != "" && !a.yield(Text(text), nil) {
		return
	}
	a.yield(Result(result), nil)
}
