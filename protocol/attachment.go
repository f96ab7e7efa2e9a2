package protocol

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// Attachment names a file that goes with a [Prompt]. The child reads it from
// its own file system, within its sandbox.
type Attachment struct {
	// The absolute path, without a ".." segment.
	Path string `json:"path"`
	// What people call the file; the base name of the path if missing.
	Name *string `json:"name,omitzero"`
	// The MIME type, as a hint; if missing, the agent looks for itself.
	Mime *string `json:"mime,omitzero"`
}

// Check reports whether the path keeps the rules of SPEC §3.8.
func (a Attachment) Check() error {
	switch {
	case !path.IsAbs(a.Path):
		return fmt.Errorf("attachment path %q is not absolute", a.Path)
	case slices.Contains(strings.Split(a.Path, "/"), ".."):
		return fmt.Errorf("attachment path %q contains a .. segment", a.Path)
	}
	return nil
}
