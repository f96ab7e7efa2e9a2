package permission

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"nexus.internal/protocol"
	"nexus.internal/protocol/rights"
)

// Verdict is what becomes of a call.
type Verdict int

// The verdicts, from the mildest to the strictest.
const (
	Allow Verdict = iota
	Ask
	Deny
)

func (v Verdict) String() string {
	switch v {
	case Allow:
		return "allow"
	case Ask:
		return "ask"
	case Deny:
		return "deny"
	default:
		return fmt.Sprintf("verdict %d", int(v))
	}
}

// Decision is a verdict and its reason, in words for a model; "" for Allow.
type Decision struct {
	Verdict Verdict
	Reason  string
}

// Call is what is decided on.
type Call struct {
	Tool   string
	Action protocol.Action
	// Paths are absolute and clean: what the call reads or changes, or where
	// its programs run.
	Paths []string
	// Programs are those that would run; empty if they are not known.
	Programs []string
	// Hosts are those whose pages would be fetched, as in [protocol.Allowance].
	Hosts []string
	// Plain says that the programs, with these arguments, run no others, whatever
	// any file holds, and name nothing outside of where they run, and that the
	// kernel can confine them: only such calls are allowed for a session.
	Plain bool
	// ReadOnly says that the programs only look at things and that the call is
	// confined as under sandboxed, so nothing can come of it.
	ReadOnly bool
}

// Policy is what holds for an agent. Its lists must not be changed.
type Policy struct {
	// Permissions are resolved.
	Permissions protocol.Permissions
	// Cwd is the working directory, absolute and clean.
	Cwd string
	// Allowances answer what would be asked. They never lift a denial.
	Allowances []protocol.Allowance
	// Homes are of the user, by the names that there are for them: no allowance is for a whole home.
	Homes []string
	// Private is not among what an agent hands on.
	Private Private
}

// Private is what belongs to nexus itself, out of bounds under every preset but
// yolo: Paths with all below them, but for what lies in Except. Where a path lies
// in some of both, the longest of these counts.
type Private struct{ Paths, Except []string }

func (p Private) contains(path string) bool {
	return rights.Deepest(p.Paths, path) > rights.Deepest(p.Except, path)
}

// Level is the built-in preset that the policy is of.
func (p Policy) Level() string { return p.Permissions.Preset }

// Decide says what becomes of a call.
func (p Policy) Decide(c Call) Decision {
	d := p.Tool(c.Tool, c.Action)
	if d.Verdict == Deny {
		return d
	}
	for _, host := range c.Hosts {
		if p.Permissions.Network != nil && !rights.NamesHost(p.Permissions.Network, host) {
			return Decision{Deny, host + " is not among the hosts that this agent's permissions name (network)"}
		}
	}
	if d.Verdict == Ask && (p.covered(c) || p.AllowedAsReadOnly(c)) {
		d = Decision{}
	}
	for _, path := range c.Paths {
		if at := p.Path(c.Tool, c.Action, path); at.Verdict > d.Verdict {
			d = at
		}
	}
	return d
}

// AllowedAsReadOnly reports whether a call runs without asking for no other reason than that
// it only looks. The caller must confine it.
func (p Policy) AllowedAsReadOnly(c Call) bool {
	rule := p.Permissions.Tools[c.Tool].Mode
	return c.ReadOnly && p.Level() == rights.Trusted && rule == "" && c.Action == protocol.ActionExecute && !p.covered(c)
}

// Covers reports whether a command runs under trusted for no other reason than
// that its programs were allowed for the session. Its arguments were not seen by
// the person who allowed these, so the caller must confine it to what the agent
// may read without asking.
func (p Policy) Covers(c Call) bool {
	return c.Action == protocol.ActionExecute && p.Level() == rights.Trusted && p.Tool(c.Tool, c.Action).Verdict == Ask && p.covered(c)
}

// Tool is the decision on a tool as far as it does not depend on the call.
func (p Policy) Tool(tool string, action protocol.Action) Decision {
	mode := p.Permissions.Tools[tool].Mode
	d := p.byPreset(tool, action)
	switch {
	case slices.Contains(p.Permissions.DisabledTools, tool):
		return Decision{Deny, tool + " is disabled for this agent"}
	case mode == rights.ModeDeny:
		return Decision{Deny, "the rules of this agent deny " + tool}
	case mode == rights.ModeAllow:
		return Decision{}
	case mode == rights.ModeAsk && d.Verdict < Ask:
		return Decision{Ask, "the rules of this agent ask before " + tool + " is used"}
	default:
		return d
	}
}

// Under is HeldTo, and tool has the allowances of the other one. It is only for a tool that does nothing
// but what the other one does: who allowed the other one did not allow more than that.
func (p Policy) Under(tool, other string) Policy {
	p = p.HeldTo(tool, other)
	p.Allowances = slices.Clone(p.Allowances)
	for _, a := range p.Allowances {
		if a.Tool == other {
			a.Tool = tool
			p.Allowances = append(p.Allowances, a)
		}
	}
	return p
}

// HeldTo is the policy in which tool is held to the rules of another one besides its own.
func (p Policy) HeldTo(tool, other string) Policy {
	rules, own, of := maps.Clone(p.Permissions.Tools), p.Permissions.Tools[tool], p.Permissions.Tools[other]
	if rules == nil {
		rules = map[string]protocol.ToolRule{}
	}
	mode := cmp.Or(own.Mode, of.Mode)
	for _, stricter := range []string{rights.ModeAsk, rights.ModeDeny} {
		if own.Mode == stricter || of.Mode == stricter {
			mode = stricter
		}
	}
	rules[tool] = protocol.ToolRule{
		Mode:         mode,
		AllowedPaths: rights.IntersectBounds(own.AllowedPaths, of.AllowedPaths),
		BlockedPaths: rights.Union(own.BlockedPaths, of.BlockedPaths),
	}
	p.Permissions.Tools = rules
	if slices.Contains(p.Permissions.DisabledTools, other) {
		p.Permissions.DisabledTools = rights.Union(p.Permissions.DisabledTools, []string{tool})
	}
	return p
}

// byPreset is the decision where no rule says anything.
func (p Policy) byPreset(tool string, action protocol.Action) Decision {
	level := p.Level()
	if level == rights.Yolo || action == protocol.ActionNone || action == protocol.ActionRead || action == protocol.ActionWrite {
		return Decision{}
	}
	if level == rights.Trusted {
		switch action {
		case protocol.ActionExecute:
			return Decision{Ask, "the preset trusted asks before programs are run"}
		case protocol.ActionFetch:
			return Decision{Ask, "the preset trusted asks before a page of the network is fetched"}
		case protocol.ActionDelegate: // whom it creates can do no more than itself
			return Decision{}
		default:
			return Decision{Ask, "the preset trusted asks before a tool of somebody else's is used"}
		}
	}
	if action == protocol.ActionExecute { // the kernel keeps it in
		return Decision{}
	}
	if action == protocol.ActionFetch {
		if len(p.Permissions.Network) > 0 { // [Policy.Decide] looks at the host
			return Decision{}
		}
		return Decision{Deny, "the preset sandboxed does not allow " + tool + ": it has no network"}
	}
	return Decision{Deny, "the preset sandboxed does not allow " + tool + ": it could reach beyond the working directory"}
}

// private is said of a path that [Policy.Private] holds.
const private = "%s is out of bounds: it belongs to nexus itself"

// private is what belongs to nexus itself as far as it is out of bounds.
func (p Policy) private() Private {
	if p.Level() == rights.Yolo {
		return Private{}
	}
	return p.Private
}

// ofProcess reports whether a path is of a process, as /proc/1/environ, by which nexus-child, which no wall
// keeps in, would tell what other processes have in theirs.
func ofProcess(path string) bool {
	name, ok := strings.CutPrefix(path, "/proc/")
	name, _, _ = strings.Cut(name, "/")
	return ok && name != "" && (name == "self" || name == "thread-self" || strings.Trim(name, "0123456789") == "")
}

// Path is the decision on one path of a call, whatever the tool: what is
// outside of all that is allowed is asked for under trusted and denied under
// sandboxed.
func (p Policy) Path(tool string, action protocol.Action, path string) Decision {
	rule, write := p.Permissions.Tools[tool], action == protocol.ActionWrite
	switch {
	case p.private().contains(path):
		return Decision{Deny, fmt.Sprintf(private, path)}
	case action != protocol.ActionExecute && p.Level() != rights.Yolo && ofProcess(path):
		return Decision{Deny, path + " is out of bounds: it belongs to a process"}
	case rights.Contains(p.Permissions.BlockedPaths, path):
		return Decision{Deny, path + " is out of bounds for this agent"}
	case rights.Contains(rule.BlockedPaths, path):
		return Decision{Deny, path + " is out of bounds for " + tool}
	case rule.AllowedPaths != nil && !rights.Contains(rule.AllowedPaths, path):
		return Decision{Deny, path + " is outside of what " + tool + " may touch: " + rights.List(rule.AllowedPaths)}
	case write && p.Permissions.WritePaths != nil && !rights.Contains(p.Permissions.WritePaths, path):
		return Decision{Deny, path + " may not be changed, only what is in " + rights.List(p.Permissions.WritePaths)}
	case p.Level() == rights.Yolo || rights.Within(p.Cwd, path) || rights.Contains(p.Permissions.AllowedPaths, path):
		return Decision{}
	}
	reason := fmt.Sprintf("%s is outside the working directory %s", path, p.Cwd)
	if allowed := p.Permissions.AllowedPaths; len(allowed) > 0 {
		reason += " and the allowed paths " + rights.List(allowed)
	}
	if p.Level() != rights.Trusted {
		return Decision{Deny, reason}
	}
	if p.coveredPath(tool, action, path) {
		return Decision{}
	}
	return Decision{Ask, reason}
}

// Blocks reports whether a path is out of bounds for a tool, wherever it works.
func (p Policy) Blocks(tool, path string) bool {
	return p.private().contains(path) || rights.Contains(p.Permissions.BlockedPaths, path) || rights.Contains(p.Permissions.Tools[tool].BlockedPaths, path)
}

// AccessiblePaths are the directories and files that a tool may touch in some way, the
// working directory first. Within them Path may still refuse.
func (p Policy) AccessiblePaths(tool string) []string {
	accessible := append([]string{p.Cwd}, p.Permissions.AllowedPaths...)
	for _, a := range p.Allowances {
		if a.Tool == tool && a.Dir != "" {
			accessible = append(accessible, a.Dir)
		}
	}
	if p.Level() == rights.Yolo {
		accessible = append(accessible, "/")
	}
	return accessible
}

// Real is the policy with each path replaced by what real says of it.
func (p Policy) Real(real func(path string) string) Policy {
	each := func(paths []string) []string {
		if paths == nil {
			return nil
		}
		mapped := make([]string, len(paths))
		for i, path := range paths {
			mapped[i] = real(path)
		}
		return mapped
	}
	h := p.Permissions
	h.AllowedPaths, h.WritePaths = each(h.AllowedPaths), each(h.WritePaths)
	// What is blocked is so by both of its names.
	h.BlockedPaths = rights.Union(h.BlockedPaths, each(h.BlockedPaths))
	h.Tools = make(map[string]protocol.ToolRule, len(p.Permissions.Tools))
	for name, r := range p.Permissions.Tools {
		r.AllowedPaths, r.BlockedPaths = each(r.AllowedPaths), rights.Union(r.BlockedPaths, each(r.BlockedPaths))
		h.Tools[name] = r
	}
	return Policy{Permissions: h, Cwd: real(p.Cwd), Allowances: p.Allowances, Homes: p.Homes, Private: Private{each(p.Private.Paths), each(p.Private.Except)}}
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
		return fmt.Errorf("%s is outside of what a sandboxed agent may touch: %s", dir, rights.List(p.AccessiblePaths("")))
	}
	return nil
}

// CheckReturn says why an agent that had this policy may not come back in dir: what is
// outside of the working directory and the allowed paths would be in reach then.
func (p Policy) CheckReturn(dir string) error {
	if p.Level() == rights.Yolo || rights.Within(p.Cwd, dir) || rights.Contains(p.Permissions.AllowedPaths, dir) {
		return nil
	}
	return fmt.Errorf("%s is outside of where this session worked: %s; only set_permissions and set_cwd give it more", dir, rights.List(p.AccessiblePaths("")))
}

// Ceiling is what an agent with this policy can hand on to one that it creates:
// its permissions, in which the working directory is one of the allowed paths.
func (p Policy) Ceiling() protocol.Permissions {
	c := p.Permissions
	c.AllowedPaths = rights.Union(c.AllowedPaths, []string{p.Cwd})
	return c
}

// Permit is what one call was allowed to run by. The zero value permits nothing.
type Permit struct {
	Policy Policy
	// ReadOnly and Covered say why nobody was asked: see [Policy.AllowedAsReadOnly]
	// and [Policy.Covers].
	ReadOnly, Covered bool
}

// Permit is the permit of a call that the policy allows by itself.
func (p Policy) Permit(c Call) Permit {
	return Permit{Policy: p, ReadOnly: p.AllowedAsReadOnly(c), Covered: p.Covers(c)}
}

// PermitOnce is the permit of a call that was allowed when the parent was asked: the
// policy with what was allowed for this call alone.
func (p Policy) PermitOnce(c Call) Permit {
	p.Allowances = slices.Clone(p.Allowances)
	for _, path := range c.Paths {
		p.Allowances = append(p.Allowances, protocol.Allowance{Tool: c.Tool, Action: c.Action, Dir: path, Programs: c.Programs})
	}
	return Permit{Policy: p}
}
