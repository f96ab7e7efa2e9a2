package agents

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"nexus.internal/child/parent"
	"nexus.internal/child/tool"
	"nexus.internal/protocol"
	"nexus.internal/protocol/strict"
	"nexus.internal/protocol/textcut"
)

// New returns the tools of an agent with that parent: all of them, or none if
// the parent is nil or takes no host calls.
func New(parent *parent.Client) []tool.Tool {
	if parent == nil || !parent.HostCalls() {
		return nil
	}
	h := &host{parent: parent}
	return []tool.Tool{
		&delegate[createInput]{spec: createSpec, summary: createInput.summary, run: h.create},
		&delegate[agentInput]{spec: destroySpec, summary: func(in agentInput) string { return "destroy agent " + in.AgentID }, run: h.destroy},
		&delegate[sendInput]{spec: sendSpec, summary: sendInput.summary, run: h.send},
		&delegate[statusInput]{spec: statusSpec, summary: statusInput.summary, run: h.status},
		&delegate[cancelInput]{spec: cancelSpec, summary: cancelInput.summary, run: h.cancel},
		&delegate[noInput]{spec: shutdownSpec, summary: func(noInput) string { return "end the server with all its agents" }, run: h.shutdown},
	}
}

// delegate is one tool, with the input T.
type delegate[T any] struct {
	spec    tool.Spec
	summary func(T) string
	run     func(context.Context, T) (tool.Result, error)
}

func (d *delegate[T]) Spec() tool.Spec { return d.spec }

func (d *delegate[T]) decode(in jsontext.Value) (input T, err error) {
	return input, strict.Unmarshal(in, &input, strict.RejectUnknown)
}

// Scope implements [tool.Scoped].
func (d *delegate[T]) Scope(in jsontext.Value) (tool.Scope, error) {
	input, err := d.decode(in)
	if err != nil {
		return tool.Scope{}, err
	}
	return tool.Scope{Action: protocol.ActionDelegate, Summary: d.summary(input)}, nil
}

// Run implements [tool.Tool].
func (d *delegate[T]) Run(ctx context.Context, in jsontext.Value) (tool.Result, error) {
	input, err := d.decode(in)
	if err != nil {
		return tool.Result{}, err
	}
	return d.run(ctx, input)
}

// host asks the parent.
type host struct {
	parent *parent.Client
	last   atomic.Uint64 // number of the last subagent
}

// raw calls a method of the façade.
func (h *host) raw(ctx context.Context, method string, params any) (jsontext.Value, error) {
	encoded, err := json.Marshal(params)
	if err != nil {
		return nil, fmt.Errorf("encode the parameters of %s: %w", method, err)
	}
	return h.parent.Call(ctx, tool.TurnID(ctx), method, encoded)
}

// ask is raw, and decodes what comes back into result.
func (h *host) ask(ctx context.Context, method string, params, result any) error {
	value, err := h.raw(ctx, method, params)
	if err != nil {
		return err
	}
	if err := strict.Unmarshal(value, result, strict.IgnoreUnknown); err != nil {
		return fmt.Errorf("read the answer to %s: %w", method, err)
	}
	return nil
}

// maxPreview bounds a preview, in bytes.
const maxPreview = 200

// preview is the beginning of a text, on one line.
func preview(text string) string { return textcut.Line(text, maxPreview) }
