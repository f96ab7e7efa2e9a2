package agents

import (
	"fmt"
	"strings"

	"nexus.internal/bridge/api"
)

// MissingDirError says that the directory in which a saved session worked is gone, or a link by
// now, and that it may work in no other than those allowed to it: elsewhere it could do more
// than before. [SpecBuilder] finds it.
type MissingDirError struct {
	Session string   // its name
	Cwd     string   // absolute
	Wanted  string   // where it was to work instead, absolute; "" for nowhere
	Allowed []string // absolute; may be empty
}

func (e *MissingDirError) Error() string {
	text := fmt.Sprintf("%s worked in %s, which is gone, or has become a link", e.Session, e.Cwd)
	if e.Wanted != "" {
		text += fmt.Sprintf("; it may not work in %s, which is not in what it was allowed", e.Wanted)
	}
	return text
}

// way says what can be done.
func (e *MissingDirError) way() string {
	if len(e.Allowed) == 0 {
		return "Make the directory again, or create an agent of another name: this one was allowed no other directory."
	}
	return "Make the directory again, or create_agent with a cwd in what it was allowed: " + strings.Join(e.Allowed, ", ") + "."
}

// apiError is the error as a client sees it.
func (e *MissingDirError) apiError() error {
	return &api.Error{Kind: api.KindDirectoryGone, Details: e.Error(), Suggestions: []string{e.way()}, Err: e}
}
