package sessions

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"nexus.internal/bridge/api"
	"nexus.internal/protocol/safefile"
)

// lastPath is the file that names the last session that a person used.
func (c *Catalogue) lastPath() string { return filepath.Join(c.home, "run", "last") }

// Last is the session that a person used last, if it is still there; "" if none
// is. It may be a temporary one.
func (c *Catalogue) Last() string {
	data, err := safefile.Read(c.lastPath(), maxNote)
	if err != nil {
		return ""
	}
	name := strings.TrimSuffix(string(data), "\n")
	if !c.There(name) {
		return ""
	}
	return name
}

// SetLast says that a person uses the session now.
func (c *Catalogue) SetLast(id string) error {
	if !api.ValidAgentID(id) {
		return fmt.Errorf("remember the last session: %q is no name of one", id)
	}
	if err := os.MkdirAll(filepath.Dir(c.lastPath()), 0o700); err != nil {
		return fmt.Errorf("remember the last session: %w", err)
	}
	if err := safefile.Replace(c.lastPath(), []byte(id+"\n"), false); err != nil {
		return fmt.Errorf("remember the last session: %w", err)
	}
	return nil
}
