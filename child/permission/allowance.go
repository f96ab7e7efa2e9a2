package permission

import (
	"path/filepath"
	"slices"
	"strings"

	"nexus.internal/protocol"
	"nexus.internal/protocol/rights"
)

// Session is what a yes for the session comes to. The zero value is none: each call is to be asked for.
type Session struct {
	// Allowances are what is recorded.
	Allowances []protocol.Allowance
	// Covers says the same in words, for the person who decides: one line of at most maxCovers bytes, in which
	// each name that is no plain word is quoted, so that a terminal acts on nothing and no name reads as words of ours.
	Covers string
}

// Grant is what a yes for the session allows, as narrow as can be: the
// tool and the directory of each file (the file alone where that directory is a home or the like), the host of a page, or in the directory of a
// command the programs it runs. isDir tells directories from files; it is asked once about each path. also names, in words, what an
// allowance of the tool covers besides. Grant returns the zero value where no
// narrow allowance can be made, so that each call is to be asked for.
func (p Policy) Grant(c Call, also []string, isDir func(path string) bool) Session {
	g := granting{call: c}
	switch c.Action {
	case protocol.ActionRead, protocol.ActionWrite:
		for _, path := range c.Paths {
			dir, whole := filepath.Dir(path), isDir(path)
			switch {
			case p.tooMuch(path), whole && p.hidden(path):
				return Session{}
			case whole:
				g.below(path)
			case (p.tooMuch(dir) || p.hidden(dir)) && c.Action == protocol.ActionRead && c.Tool != "read_file":
				return Session{} // such a tool looks at all of what may be a directory by then
			case p.tooMuch(dir), p.hidden(dir):
				g.file(path)
			default:
				g.below(dir)
			}
		}
	case protocol.ActionExecute:
		if !c.Plain || len(c.Programs) == 0 {
			return Session{}
		}
		dir := p.Cwd
		if len(c.Paths) > 0 {
			dir = c.Paths[0]
		}
		g.programs(dir)
	case protocol.ActionFetch:
		if len(c.Hosts) == 0 {
			return Session{}
		}
		g.hosts()
	default:
		g.calls()
	}
	return g.session(also)
}

// tooMuch reports whether no yes for the session is for all of a directory: it is the top, the home of
// a user, or above a home or the working directory.
func (p Policy) tooMuch(dir string) bool {
	if dir == "/" || dir != p.Cwd && rights.Within(dir, p.Cwd) {
		return true
	}
	above := func(home string) bool { return rights.Within(dir, home) }
	return slices.ContainsFunc(p.Homes, above) || slices.Contains(p.homesLieIn(), dir) || dir != p.Cwd && p.isHome(dir)
}

// hidden reports whether a directory lies directly in a home and its name begins with a dot. Such ones hold
// keys and passwords, as .ssh does, so no yes for the session is for all of them either.
func (p Policy) hidden(dir string) bool {
	return dir != p.Cwd && strings.HasPrefix(filepath.Base(dir), ".") && p.isHome(filepath.Dir(dir))
}

// isHome reports whether a directory is a home: the user's, one that lies beside it, or one in /home or /Users.
func (p Policy) isHome(dir string) bool {
	return slices.Contains(p.Homes, dir) || slices.Contains(p.homesLieIn(), filepath.Dir(dir))
}

func (p Policy) homesLieIn() []string {
	dirs := []string{"/home", "/Users"}
	for _, home := range p.Homes {
		if above := filepath.Dir(home); above != "/" {
			dirs = append(dirs, above)
		}
	}
	return dirs
}

// Narrow are the allowances but those for files of a whole directory that is too much. isDir tells directories from files.
func (p Policy) Narrow(all []protocol.Allowance, isDir func(path string) bool) []protocol.Allowance {
	return slices.DeleteFunc(slices.Clone(all), func(a protocol.Allowance) bool {
		return (a.Action == protocol.ActionRead || a.Action == protocol.ActionWrite) && !a.Alone && (p.tooMuch(a.Dir) || p.hidden(a.Dir) && isDir(a.Dir))
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
		return slices.ContainsFunc(p.Allowances, func(a protocol.Allowance) bool {
			return a.Tool == c.Tool && a.Action == c.Action && slices.Equal(a.Programs, c.Programs)
		})
	}
}

func (p Policy) coveredPath(tool string, action protocol.Action, path string) bool {
	return slices.ContainsFunc(p.Allowances, func(a protocol.Allowance) bool {
		return a.Tool == tool && a.Action == action && a.Dir != "" && (a.Dir == path || !a.Alone && rights.Within(a.Dir, path))
	})
}
