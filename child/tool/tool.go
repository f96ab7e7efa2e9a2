// Package tool is the seam between an agent and what it can do. A Tool is one
// function that a model may call; the Registry runs calls with bounds. The
// packages below this one are the tools.
package tool

import (
	"context"

	"github.com/go-json-experiment/json/jsontext"

	"nexus.internal/protocol"
)

// Tool is one function that a model may call. It is safe for concurrent use.
type Tool interface {
	Spec() Spec
	// Run carries out one call. in is a JSON object as the model gave it. A
	// failure that the model should see is an error; it never ends the turn.
	Run(ctx context.Context, in jsontext.Value) (Result, error)
}

// Spec describes a tool to a model and to tools_list.
type Spec = protocol.Tool

// Result is what a call gave back.
type Result struct {
	Text string
	// IsError marks a Text that tells of a failure, such as a command's exit
	// status: unlike an error it is passed on as it is.
	IsError bool
	// Images go with the text.
	Images []protocol.Image
	// Changed are the files that the call made or changed, absolute.
	Changed []string
	// Created are those of Changed that were not there before.
	Created []string
}

// Images keeps images for the model to look at. It is safe for concurrent use.
type Images interface {
	// Put keeps an image. mime is what its source calls it, and name where it is from.
	Put(data []byte, mime, name string) (protocol.Image, error)
}

// Scoped is a Tool that can say beforehand what a call would touch. The calls
// of a tool that cannot are taken for ActionExternal.
type Scoped interface {
	Tool
	// Scope reads the input that Run would get. An error is a bad input.
	Scope(in jsontext.Value) (Scope, error)
}

// Scope is what one call would touch.
type Scope struct {
	Action protocol.Action
	// Paths are as the model gave them, relative to the working directory or
	// absolute. Empty means the working directory as a whole.
	Paths []string
	// Command is what a shell would run, Programs the commands in it as far as
	// they are known.
	Command  string
	Programs []string
	// Summary says in one line what would happen: "write a.txt (12 bytes)".
	Summary string
}

// Guard decides whether a call may run. It may wait for somebody to answer: that
// time is not the tool's. The tool runs with the context that is returned, in
// which the guard can say what was granted. An error refuses the call and is
// told to the model.
type Guard func(ctx context.Context, t Tool, call protocol.ToolCall) (context.Context, error)

// progressKey finds the listener of a call in its context.
type progressKey struct{}

// WithProgress lets listen hear what the tools under the context put out while
// they run.
func WithProgress(ctx context.Context, listen func(text string)) context.Context {
	return context.WithValue(ctx, progressKey{}, listen)
}

// Progress is where a tool tells what it puts out while it runs. It waits until
// that is passed on or the call ends, and drops it if nobody listens. The
// function is safe for concurrent use.
func Progress(ctx context.Context) func(text string) {
	if listen, ok := ctx.Value(progressKey{}).(func(string)); ok {
		return listen
	}
	return func(string) {}
}

// turnKey finds the id of the turn in the context of a call.
type turnKey struct{}

// WithTurn names the turn that the calls under the context belong to.
func WithTurn(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, turnKey{}, id)
}

// TurnID is the id of the turn that a call belongs to; "" outside of one.
func TurnID(ctx context.Context) string {
	id, _ := ctx.Value(turnKey{}).(string)
	return id
}
