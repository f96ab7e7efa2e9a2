package rights

import (
	"fmt"
	"path/filepath"
	"strings"

	"nexus.internal/protocol"
)

// List names some paths.
func List(paths []string) string {
	const most = 8
	switch {
	case len(paths) == 0:
		return "nothing"
	case len(paths) > most:
		return fmt.Sprintf("%s and %d more", strings.Join(paths[:most], ", "), len(paths)-most)
	default:
		return strings.Join(paths, ", ")
	}
}

// CheckCwd says why an agent under that ceiling may not work in cwd: unless the
// ceiling is yolo or names no allowed path, they are all there is.
func CheckCwd(ceiling protocol.Permissions, cwd string) error {
	bounds := AccessiblePaths(ceiling)
	if len(bounds) == 0 || Contains(bounds, filepath.Clean(cwd)) {
		return nil
	}
	return fmt.Errorf("%s is outside of what this agent's ceiling allows: %s", cwd, List(bounds))
}
