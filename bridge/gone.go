package bridge

import (
	"fmt"
	"strings"
)

// GoneError says that the directory in which a saved session worked is gone, or a link by
// now, and that it may work in no other than those allowed to it: elsewhere it could do more
// than before. [Options.Spec] finds it.
type GoneError struct {
	AgentID string
	Cwd     string   // absolute
	Allowed []string // absolute; may be empty
}

func (e *GoneError) Error() string {
	return fmt.Sprintf("%s worked in %s, which is gone, or has become a link", e.AgentID, e.Cwd)
}

// way says what can be done.
func (e *GoneError) way() string {
	if len(e.Allowed) == 0 {
		return "Make the directory again, or create an agent of another name: this one was allowed no other directory."
	}
	return "Make the directory again, or create_agent with a cwd in what it was allowed: " + strings.Join(e.Allowed, ", ") + "."
}
