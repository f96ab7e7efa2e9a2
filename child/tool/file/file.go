package file

import (
	"context"
	"fmt"
	"io/fs"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"nexus.internal/child/tool"
	"nexus.internal/protocol"
	"nexus.internal/protocol/strict"
)

// Options is what the tools need.
type Options struct {
	// Spaces says what a call may touch. Required.
	Spaces Spaces
	// Images keeps an image for the model to look at; nil: images are refused
	// like all that is no text.
	Images tool.Images
}

// Spaces says what calls may touch. It is safe for concurrent use.
type Spaces interface {
	Space(c tool.Call) Space
}

// Tools returns the tools for files, read_file first.
func Tools(o Options) []tool.Tool {
	f := &files{options: o, writer: make(chan struct{}, 1)}
	return []tool.Tool{
		function[readInput]{f, readSpec, protocol.ActionRead},
		function[listInput]{f, listSpec, protocol.ActionRead},
		function[writeInput]{f, writeSpec, protocol.ActionWrite},
		function[editInput]{f, editSpec, protocol.ActionWrite},
		patchTool{function[patchInput]{f, patchSpec, protocol.ActionWrite}},
		function[moveInput]{f, moveSpec, protocol.ActionWrite},
		function[copyInput]{f, copySpec, protocol.ActionWrite},
		function[deleteInput]{f, deleteSpec, protocol.ActionWrite},
		function[globInput]{f, globSpec, protocol.ActionRead},
		function[searchInput]{f, searchSpec, protocol.ActionRead},
	}
}

// input is what a tool of this package is called with.
type input interface {
	// about are the paths that the call is about, and what it does in a few words.
	about() (paths []string, summary string)
	run(ctx context.Context, f *files, s Space) (tool.Result, error)
}

// function is a tool whose input is decoded into an In.
type function[In input] struct {
	files  *files
	spec   tool.Spec
	action protocol.Action
}

func (f function[In]) Spec() tool.Spec { return f.spec }

func (f function[In]) Scope(in jsontext.Value) (tool.Scope, error) {
	var input In
	if err := strict.Unmarshal(in, &input, strict.RejectUnknown); err != nil {
		return tool.Scope{Action: f.action}, err
	}
	paths, summary := input.about()
	return tool.Scope{Action: f.action, Paths: paths, Summary: summary}, nil
}

func (f function[In]) Run(ctx context.Context, c tool.Call) (tool.Result, error) {
	var input In
	if err := strict.Unmarshal(c.Input, &input, strict.RejectUnknown); err != nil {
		return tool.Result{}, err
	}
	if f.action == protocol.ActionWrite {
		select {
		case f.files.writer <- struct{}{}:
			defer func() { <-f.files.writer }()
		case <-ctx.Done():
			return tool.Result{}, ctx.Err()
		case <-time.After(writerPatience):
			return tool.Result{}, fmt.Errorf("an earlier change of a file still goes on after %s; nothing was changed", writerPatience)
		}
	}
	return input.run(ctx, f.files, f.files.options.Spaces.Space(c))
}

// writerPatience is how long a change waits for the ones before it.
const writerPatience = 20 * time.Second

// files is what the tools have in common.
type files struct {
	options Options
	writer  chan struct{} // full while a call writes: of two edits at once none is lost
}

// kind names what is neither a regular file nor a directory.
func kind(mode fs.FileMode) string {
	switch {
	case mode.IsDir():
		return "a directory"
	case mode&fs.ModeNamedPipe != 0:
		return "a named pipe"
	case mode&fs.ModeSocket != 0:
		return "a socket"
	case mode&fs.ModeDevice != 0:
		return "a device"
	case mode&fs.ModeSymlink != 0:
		return "a symbolic link"
	default:
		return "not a regular file"
	}
}
