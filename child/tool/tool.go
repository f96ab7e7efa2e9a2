// Package tool is the seam between an agent and what it can do. A Tool is one
// function that a model may call. The packages below this one are the tools.
//
// A call goes one way: the turn gives the calls of an answer to [Registry.Run], which
// checks the input, asks the [Guard] for a permit, and runs the [Tool] with a [Call]
// that says all of it; what the tool puts out and its outcome go back to the turn's
// [Watcher].
package tool

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"nexus.internal/child/permission"
	"nexus.internal/protocol"
)

// Tool is one function that a model may call. It is safe for concurrent use.
type Tool interface {
	Spec() Spec
	// Run carries out one call. A failure that the model should see is an error; it
	// never ends the turn.
	Run(ctx context.Context, c Call) (Result, error)
}

// Call is one call of a tool, as it is to be carried out.
type Call struct {
	ID    string
	Name  string
	Input jsontext.Value // a JSON object, as the model gave it
	// TurnID is the id of the turn that the call belongs to; "" outside of one.
	TurnID string
	// Permit is what the guard lets the call run by.
	Permit permission.Permit
	// Progress hears what the tool puts out while it runs; nil: nobody ever does.
	Progress Progress
	// Kept is told what the tool puts out, for the result of a call that does not return in
	// time. It may be nil.
	Kept *Kept
}

// Kept is the beginning of what a call has put out so far. A nil Kept keeps nothing. It is
// safe for concurrent use.
type Kept struct {
	mu    sync.Mutex
	text  []byte // at most maxKept
	total int
}

const maxKept = 16 << 10 // bytes

// Add adds text that was put out.
func (k *Kept) Add(text []byte) {
	if k == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.text = append(k.text, text[:min(len(text), maxKept-len(k.text))]...)
	k.total += len(text)
}

// result is what was put out by a call that ended because of err, and that it did.
func (k *Kept) result(err error) (Result, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.total == 0 {
		return Result{}, err
	}
	text := string(k.text)
	if missing := k.total - len(text); missing > 0 {
		text += fmt.Sprintf("\n[%d more bytes are lost]", missing)
	}
	return Result{Text: text + "\n[" + err.Error() + "]", IsError: true}, nil
}

// Progress hears what a call puts out while it runs. It is safe for concurrent use.
type Progress interface {
	// Wanted reports whether anybody hears it now; that may change while the call runs.
	Wanted() bool
	// Report waits until text is passed on or the call ends.
	Report(text string)
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

// Timed is a Tool that ends its calls itself, after a time that the call or its
// configuration names.
type Timed interface {
	Tool
	// TimeLimit is that time; 0 if the input that Run would get is bad.
	TimeLimit(in jsontext.Value) time.Duration
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
	// Hosts are those whose pages would be fetched.
	Hosts []string
	// AlsoUnder are other tools whose rules hold for the call besides its own tool's.
	AlsoUnder []string
	// Summary says in one line what would happen: "write a.txt (12 bytes)".
	Summary string
}

// Guard decides whether a call may run.
type Guard interface {
	// Authorize may wait for somebody to answer: that time is not the tool's. An error
	// refuses the call and is shown to the model.
	Authorize(ctx context.Context, t Tool, c Call) (permission.Permit, error)
}
