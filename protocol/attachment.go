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
	// Path is absolute and has no ".." segment.
	Path string `json:"path"`
	// Name is what people call the file; nil means the base name of Path.
	Name *string `json:"name,omitzero"`
	// Mime is a hint; nil means that the child looks for itself.
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
