package permission

import (
	"path/filepath"
	"slices"

	"nexus.internal/protocol"
	"nexus.internal/protocol/rights"
)

// Grant is what a yes for the session allows, as narrow as can be: the
// tool and the directory of each file (the file alone where that directory is a home or the like), the host of a page, or in the directory of a
// command the programs it runs. isDir tells directories from files. It returns nil where no
// narrow allowance can be made, so that each call is to be asked for.
func (p Policy) Grant(c Call, isDir func(path string) bool) []protocol.Allowance {
	switch c.Action {
	case protocol.ActionRead, protocol.ActionWrite:
		var all []protocol.Allowance
		for _, path := range c.Paths {
			switch dir := filepath.Dir(path); {
			case p.tooMuch(path):
				return nil
			case !isDir(path) && !p.tooMuch(dir):
				path = dir
			}
			all = append(all, protocol.Allowance{Tool: c.Tool, Action: c.Action, Dir: path})
		}
		return all
	case protocol.ActionExecute:
		if !c.Plain || len(c.Programs) == 0 {
			return nil
		}
		dir := p.Cwd
		if len(c.Paths) > 0 {
			dir = c.Paths[0]
		}
		return []protocol.Allowance{{Tool: c.Tool, Action: c.Action, Dir: dir, Programs: rights.Sorted(slices.Clone(c.Programs))}}
	case protocol.ActionFetch:
		if len(c.Hosts) == 0 {
			return nil
		}
		return []protocol.Allowance{{Tool: c.Tool, Action: c.Action, Hosts: c.Hosts}}
	default:
		return []protocol.Allowance{{Tool: c.Tool, Action: c.Action}}
	}
}

// tooMuch reports whether no yes for the session is for all of a directory: it is the top, the home of
// a user, or above a home or the working directory. What lies beside the user's home, or in /home, is a
// home, but for the working directory.
func (p Policy) tooMuch(dir string) bool {
	if dir == "/" || dir != p.Cwd && rights.Within(dir, p.Cwd) {
		return true
	}
	homes := []string{"/home", "/Users"}
	for _, home := range p.Homes {
		if rights.Within(dir, home) {
			return true
		}
		if above := filepath.Dir(home); above != "/" {
			homes = append(homes, above)
		}
	}
	return slices.Contains(homes, dir) || dir != p.Cwd && slices.Contains(homes, filepath.Dir(dir))
}

// Narrow are the allowances but those for files of a whole directory that is too much.
func (p Policy) Narrow(all []protocol.Allowance) []protocol.Allowance {
	return slices.DeleteFunc(slices.Clone(all), func(a protocol.Allowance) bool {
		return (a.Action == protocol.ActionRead || a.Action == protocol.ActionWrite) && p.tooMuch(a.Dir)
	})
}

// covered reports whether a call as a whole was allowed before.
func (p Policy) covered(c Call) bool {
	switch c.Action {
	case protocol.ActionRead, protocol.ActionWrite:
		paths := c.Paths
		if len(paths) == 0 {
			paths = []string{p.Cwd}
		}
		return !slices.ContainsFunc(paths, func(path string) bool { return !p.coveredPath(c.Tool, c.Action, path) })
	case protocol.ActionExecute:
		dir := p.Cwd
		if len(c.Paths) > 0 {
			dir = c.Paths[0]
		}
		return c.Plain && len(c.Programs) > 0 && slices.ContainsFunc(p.Allowances, func(a protocol.Allowance) bool {
			missing := func(name string) bool { return !slices.Contains(a.Programs, name) }
			return a.Tool == c.Tool && a.Action == c.Action && a.Dir != "" && rights.Within(a.Dir, dir) && !slices.ContainsFunc(c.Programs, missing)
		})
	case protocol.ActionFetch:
		return len(c.Hosts) > 0 && !slices.ContainsFunc(c.Hosts, func(host string) bool {
			return !slices.ContainsFunc(p.Allowances, func(a protocol.Allowance) bool {
				return a.Tool == c.Tool && a.Action == c.Action && slices.Contains(a.Hosts, host)
			})
		})
	default:
		return slices.ContainsFunc(p.Allowances, func(a protocol.Allowance) bool { return a.Tool == c.Tool && a.Action == c.Action })
	}
}

func (p Policy) coveredPath(tool string, action protocol.Action, path string) bool {
	return slices.ContainsFunc(p.Allowances, func(a protocol.Allowance) bool {
		return a.Tool == tool && a.Action == action && a.Dir != "" && rights.Within(a.Dir, path)
	})
}
