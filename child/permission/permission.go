// Package permission holds the named permission levels and what each of them
// lets an agent do. Decisions are pure functions of the preset and the tool.
//
//	preset, err := permission.Parse("sandboxed")
//	ok, reason := preset.Allows("write_file")
//
// It does not guard the file system: the file tools cannot leave the working
// directory under any preset. All functions are safe for concurrent use. The
// contract is SPEC.md §4.5.
package permission

import "fmt"

// Preset is a named permission level. The zero value allows nothing; Parse and
// the constants give the ones that exist.
type Preset string

// The presets, from the most to the least that is allowed.
const (
	Yolo      Preset = "yolo"
	Trusted   Preset = "trusted"
	Sandboxed Preset = "sandboxed"
)

// Default is the preset of an agent for which none was named.
const Default = Trusted

// confined are the tools that cannot reach beyond the working directory.
var confined = map[string]bool{
	"read_file": true, "list_directory": true, "write_file": true, "edit_file": true,
	"glob": true, "search_text": true, "sleep": true,
}

// Parse reads the name of a preset. The empty name is [Default].
func Parse(name string) (Preset, error) {
	switch p := Preset(name); p {
	case "":
		return Default, nil
	case Yolo, Trusted, Sandboxed:
		return p, nil
	default:
		return "", fmt.Errorf("unknown preset %q, want yolo, trusted or sandboxed", name)
	}
}

// String is the preset's name.
func (p Preset) String() string { return string(p) }

// Allows reports whether the preset lets an agent use the tool, and if not,
// why, in words for the model. Yolo and trusted allow every tool that the agent
// has; sandboxed allows those that cannot reach beyond the working directory.
func (p Preset) Allows(tool string) (ok bool, reason string) {
	switch p {
	case Yolo, Trusted:
		return true, ""
	case Sandboxed:
		if confined[tool] {
			return true, ""
		}
		return false, fmt.Sprintf("the preset sandboxed does not allow %s: it could reach beyond the working directory", tool)
	default:
		return false, fmt.Sprintf("the preset %q is not known, so it allows nothing", string(p))
	}
}
