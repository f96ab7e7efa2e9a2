package permission

import (
	"fmt"
	"path/filepath"

	"nexus.internal/protocol"
	"nexus.internal/protocol/rights"
)

// CheckCwd says why an agent under that ceiling may not work in cwd: unless the
// ceiling is yolo or names no allowed path, they are all there is.
func CheckCwd(ceiling protocol.Permissions, cwd string) error {
	bounds := rights.AccessiblePaths(ceiling)
	if len(bounds) == 0 || rights.Contains(bounds, filepath.Clean(cwd)) {
		return nil
	}
	return fmt.Errorf("%s is outside of what this agent's ceiling allows: %s", cwd, list(bounds))
}

// CheckMove says why the working directory may not become dir: under sandboxed it
// stays in the present one and the allowed paths.
func (p Policy) CheckMove(dir string) error {
	if p.private().contains(dir) {
		return fmt.Errorf(private, dir)
	}
	if rights.Contains(p.Permissions.BlockedPaths, dir) {
		return fmt.Errorf("%s is out of bounds for this agent", dir)
	}
	if p.Level() == rights.Sandboxed && !rights.Within(p.Cwd, dir) && !rights.Contains(p.Permissions.AllowedPaths, dir) {
		return fmt.Errorf("%s is outside of what a sandboxed agent may touch: %s", dir, list(p.AccessiblePaths("")))
	}
	return nil
}

// CheckReturn says why an agent that had this policy may not come back in dir: what is
// outside of the working directory and the allowed paths would be in reach then.
func (p Policy) CheckReturn(dir string) error {
	if p.Level() == rights.Yolo || rights.Within(p.Cwd, dir) || rights.Contains(p.Permissions.AllowedPaths, dir) {
		return nil
	}
	return fmt.Errorf("%s is outside of where this session worked: %s; only set_permissions and set_cwd give it more", dir, list(p.AccessiblePaths("")))
}

// Ceiling is what an agent with this policy can hand on to one that it creates:
// its permissions, in which the working directory is one of the allowed paths.
func (p Policy) Ceiling() protocol.Permissions {
	c := p.Permissions
	c.AllowedPaths = rights.Union(c.AllowedPaths, []string{p.Cwd})
	return c
}
