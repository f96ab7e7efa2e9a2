package toolenv

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"nexus.internal/child/egress"
	"nexus.internal/child/permission"
	"nexus.internal/child/sandbox"
	"nexus.internal/protocol/rights"
	"nexus.internal/protocol/textcut"
)

const (
	// shellName is the tool whose programs the walls are told of.
	shellName = "shell"
	// maxWalls bounds what is told of the walls, in bytes.
	maxWalls = 8 << 10
	// shownPaths is how many paths of one kind are told.
	shownPaths = 8
)

// usualPrograms are those that a model may count on or not: which of them are there is told.
var usualPrograms = []string{
	"bash", "git", "go", "node", "npm", "python3", "pip", "uv", "make", "cmake", "gcc", "clang", "cargo", "rustc", "java", "javac", "mvn",
	"ruby", "php", "perl", "rg", "jq", "curl", "wget", "docker", "sqlite3",
}

// Walls are the permissions as lines for the model: the preset, where programs write and read,
// their network, the time of a call, and the programs that there are. They are the same as long
// as the permissions and the directory are, since providers cache what requests begin with.
// They are made when they are first asked for: the search for programs takes longer than all
// else that a start reads.
func (env *Env) Walls() string {
	if env == nil {
		return ""
	}
	env.Tools() // which are told of the same
	env.mu.Lock()
	defer env.mu.Unlock()
	if env.offered.walls == "" {
		env.offered.walls = env.walls(env.offered)
	}
	return env.offered.walls
}

// walls tells of what the policy of an offer allows.
func (env *Env) walls(of offer) string {
	policy := of.policy
	lines := []string{"Permissions: " + policy.Level() + map[string]string{
		rights.Sandboxed: ", so what lies outside of the working directory and the allowed paths is refused",
		rights.Trusted:   ", so what leaves the working directory and the allowed paths, and most programs, need an approval",
		rights.Yolo:      ", so nothing needs an approval",
	}[policy.Level()]}
	if allowed := policy.Permissions.AllowedPaths; len(allowed) > 0 && policy.Level() != rights.Yolo {
		lines = append(lines, "Allowed paths: "+shown(allowed))
	}
	if blocked := policy.Permissions.BlockedPaths; len(blocked) > 0 {
		lines = append(lines, "Blocked paths: "+shown(blocked))
	}
	if of.shell {
		r := env.rules(permission.Permit{Policy: policy}, shellName)
		lines = append(lines, "Walls: "+told(r))
		if found := env.programs.on(r); len(found) > 0 {
			lines = append(lines, "Found on PATH: "+strings.Join(found, " "))
		}
	}
	if of.timeout > 0 {
		lines = append(lines, "Time: "+timeLimit(of.timeout))
	} else {
		lines = append(lines, "Time: a call of a tool ends after 5m0s, unless it names another time")
	}
	return textcut.Head(strings.Join(lines, "\n"), maxWalls)
}

// shellWalls are those that the description of shell tells of.
func (env *Env) shellWalls(of offer) string {
	bounds := told(env.rules(permission.Permit{Policy: of.policy}, shellName))
	if of.timeout > 0 {
		bounds += " " + timeLimit(of.timeout) + ", whatever time it names."
	}
	return textcut.Head("The walls of this agent: "+bounds, maxWalls)
}

// timeLimit tells of the time that each call has.
func timeLimit(limit time.Duration) string {
	return fmt.Sprintf("each call of a tool ends after %v", limit)
}

// told is what the rules let programs do, in one sentence.
func told(r sandbox.Rules) string {
	if r.Confinement == sandbox.Unconfined {
		return "programs do all that their user may, the network included."
	}
	network := "programs have no network"
	if r.Loopback != nil {
		network = "programs share a loopback of their own and have no other network"
	}
	if r.Network {
		network = "programs have the network"
	}
	if gate, ok := r.Gate.(*egress.Gate); ok {
		network = "programs share a loopback and reach no host"
		if hosts := gate.Hosts(); len(hosts) > 0 {
			network = "programs reach only these hosts, by the proxy in HTTP_PROXY and HTTPS_PROXY: " + shown(hosts)
		}
	}
	writes := ", write only to $TMPDIR"
	if r.Home != "" {
		writes += ", $HOME (its own, with its caches, kept with the session)"
	}
	switch {
	case slices.Contains(r.ReadWrite, "/"):
		writes = ", write to all files of their user"
	case len(r.ReadWrite) > 0:
		writes += " and " + shown(r.ReadWrite)
	}
	reads := ", and read only these and the system's programs, libraries and settings."
	if slices.Contains(r.ReadOnly, "/") || slices.Contains(r.ReadWrite, "/") {
		reads = ", and read all files of their user, except those of nexus itself and what is blocked."
	}
	return network + writes + reads
}

// shown is a list of paths, or of hosts, in one line.
func shown(paths []string) string {
	var b strings.Builder
	paths = rights.Sorted(slices.Clone(paths))
	for i, path := range paths[:min(len(paths), shownPaths)] {
		if i > 0 {
			b.WriteString(", ")
		}
		if strings.ContainsFunc(path, func(r rune) bool { return !unicode.IsPrint(r) }) {
			path = strconv.Quote(path) // it is one line, whatever it is named
		}
		b.WriteString(path)
	}
	if more := len(paths) - shownPaths; more > 0 {
		fmt.Fprintf(&b, " and %d more", more)
	}
	return b.String()
}

// programs are the usual ones as they were found. Env.mu guards it.
type programs struct {
	path  string // the PATH that was searched
	found []string
}

// on are those that are found by programs under the rules. The search is done once for each
// PATH.
func (p *programs) on(r sandbox.Rules) []string {
	if path := r.SearchPath(); p.path != path {
		p.path, p.found = path, sandbox.Find(path, usualPrograms)
	}
	return p.found
}
