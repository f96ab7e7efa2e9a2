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
		delegate[createInput]{h, createSpec},
		delegate[destroyInput]{h, destroySpec},
		delegate[sendInput]{h, sendSpec},
		delegate[statusInput]{h, statusSpec},
		delegate[cancelInput]{h, cancelSpec},
		delegate[shutdownInput]{h, shutdownSpec},
	}
}

// input is what a tool of this package is called with.
type input interface {
	// summary says in one line what would happen.
	summary() string
	run(ctx context.Context, c caller) (tool.Result, error)
}

// delegate is one tool, with the input In.
type delegate[In input] struct {
	host *host
	spec tool.Spec
}

func (d delegate[In]) Spec() tool.Spec { return d.spec }

func (d delegate[In]) decode(raw jsontext.Value) (in In, err error) {
	return in, strict.Unmarshal(raw, &in, strict.RejectUnknown)
}

// Scope implements [tool.Scoped].
func (d delegate[In]) Scope(raw jsontext.Value) (tool.Scope, error) {
	in, err := d.decode(raw)
	if err != nil {
		return tool.Scope{}, err
	}
	return tool.Scope{Action: protocol.ActionDelegate, Summary: in.summary()}, nil
}

// Run implements [tool.Tool].
func (d delegate[In]) Run(ctx context.Context, c tool.Call) (tool.Result, error) {
	in, err := d.decode(c.Input)
	if err != nil {
		return tool.Result{}, err
	}
	return in.run(ctx, caller{d.host, c.TurnID})
}

// host is what the tools have in common.
type host struct {
	parent *parent.Client
	last   atomic.Uint64 // number of the last subagent
}

// caller asks the parent for one call of a tool.
type caller struct {
	*host
	turnID string
}

// raw calls a method of the façade.
func (c caller) raw(ctx context.Context, method string, params any) (jsontext.Value, error) {
	encoded, err := json.Marshal(params)
	if err != nil {
		return nil, fmt.Errorf("encode the parameters of %s: %w", method, err)
	}
	return c.parent.Call(ctx, c.turnID, method, encoded)
}

// ask is raw, and decodes what comes back into result.
func (c caller) ask(ctx context.Context, method string, params, result any) error {
	value, err := c.raw(ctx, method, params)
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
