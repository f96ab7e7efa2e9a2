package agents

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/rpc"
)

// MissingDirError says that a saved session cannot go on in the directory in which it worked,
// and that it may work in no other than those allowed to it: elsewhere it could do more than
// before. [Admission] finds it.
type MissingDirError struct {
	Session string   // its name
	Cwd     string   // absolute
	Err     error    // why the directory cannot be reached; nil if it, or one above it, is a link now
	Wanted  string   // where it was to work instead, absolute; "" for nowhere
	Allowed []string // absolute; may be empty
}

func (e *MissingDirError) Error() string {
	text := fmt.Sprintf("%s worked in %s, which %s", e.Session, e.Cwd, e.why())
	if e.Wanted != "" {
		text += fmt.Sprintf("; it may not work in %s, which is not in what it was allowed", e.Wanted)
	}
	return text
}

func (e *MissingDirError) why() string {
	reason := e.Err
	if path, ok := errors.AsType[*fs.PathError](e.Err); ok {
		reason = path.Err
	}
	switch {
	case reason == nil:
		return "has become a link, or is below one"
	case errors.Is(reason, fs.ErrPermission):
		return "may not be entered"
	case errors.Is(reason, fs.ErrNotExist):
		return "is gone"
	}
	return "cannot be reached: " + reason.Error()
}

// Remedy is what can be done about it.
func (e *MissingDirError) Remedy() string {
	again := rpc.MendDir(e.Err) + ". Then " + rpc.MoveAgent(e.Session) + " Or "
	if len(e.Allowed) == 0 {
		return again + "create an agent of another name: this one was allowed no other directory."
	}
	return again + "create_agent with a cwd in what it was allowed: " + strings.Join(e.Allowed, ", ") + "."
}

func (e *MissingDirError) apiError() error {
	return &api.Error{Kind: api.KindDirectoryGone, Details: e.Error(), Suggestions: []string{e.Remedy()}, Err: e}
}
