// Package tool is the seam between an agent and what it can do. A Tool is one
// function that a model may call; the Registry runs calls with bounds. The
// packages below this one are the tools.
package tool

import (
	"context"

	"github.com/go-json-experiment/json/jsontext"
)

// Tool is one function that a model may call. It is safe for concurrent use.
type Tool interface {
	Spec() Spec
	// Run carries out one call. in is a JSON object as the model gave it. A
	// failure that the model should see is an error; it never ends the turn.
	Run(ctx context.Context, in jsontext.Value) (Result, error)
}

// Spec describes a tool to a model and to tools_list.
type Spec struct {
	Name        string         `json:"name"`
	Description string         `json:"description"`
	InputSchema jsontext.Value `json:"input_schema"` // a JSON Schema object
}

// Result is what a call gave back.
type Result struct {
	Text string
}
