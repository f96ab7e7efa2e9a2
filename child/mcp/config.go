package mcp

import (
	"fmt"
	"maps"
	"math"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"nexus.internal/protocol/strict"
)

const (
	// DefaultTimeout is how long a call may take (SPEC §4.9).
	DefaultTimeout = 60 * time.Second

	maxTimeout    = 3600     // seconds
	maxFileSize   = 1 << 20  // bytes
	maxServers    = 32       // in one file
	maxNameLength = 32       // bytes, of a server
	maxWords      = 256      // arguments, variables, headers, allowed tools, each
	maxWordLength = 32 << 10 // bytes, of each of these
)

// Server is one entry of mcp.json. It is a program if it has a Command, else it
// is reached at its URL.
type Server struct {
	Name    string
	Project bool // a project's file names it

	Command string
	Args    []string
	Env     map[string]string
	Cwd     string // relative to the agent's working directory; "" is that

	URL     string
	Headers map[string]string

	Disabled bool
	// Timeout bounds one call; 0 means DefaultTimeout.
	Timeout time.Duration
	// AllowedTools, unless nil, are the only tools that are taken from it.
	AllowedTools []string

	// Problem says why it cannot be used, as when a variable is not set; "" if
	// it can.
	Problem string
	// secrets are what neither the log nor an error may show.
	secrets []string
}

// transport is the name of the way the server is reached; "" if there is none.
func (s Server) transport() string {
	switch {
	case s.Command != "":
		return "stdio"
	case s.URL != "":
		return "http"
	default: // the project's file is wrong
		return ""
	}
}

// target is what would be started or reached.
func (s Server) target() string {
	if s.Command == "" {
		return s.URL
	}
	return s.commandLine()
}

// commandLine is what the server's program would be started with, variables
// included, in words of a shell.
func (s Server) commandLine() string {
	var words []string
	for _, name := range slices.Sorted(maps.Keys(s.Env)) {
		words = append(words, name+"="+quote(s.Env[name]))
	}
	words = append(words, quote(s.Command))
	for _, arg := range s.Args {
		words = append(words, quote(arg))
	}
	line := strings.Join(words, " ")
	if s.Cwd != "" {
		line = "cd " + quote(s.Cwd) + " && " + line
	}
	return line
}

// quote writes a word as a shell would read it.
func quote(word string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./:=@,+%", r)
	}
	if word != "" && strings.TrimFunc(word, plain) == "" {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// file is mcp.json.
type file struct {
	Servers map[string]entry `json:"mcpServers" wire:"default"`
}

// entry is one of its servers, as it is written.
type entry struct {
	Type         string            `json:"type" wire:"default"`
	Command      string            `json:"command" wire:"default"`
	Args         []string          `json:"args" wire:"default"`
	Env          map[string]string `json:"env" wire:"default"`
	Cwd          string            `json:"cwd" wire:"default"`
	URL          string            `json:"url" wire:"default"`
	Headers      map[string]string `json:"headers" wire:"default"`
	Disabled     bool              `json:"disabled" wire:"default"`
	TimeoutS     *float64          `json:"timeout_s"`
	AllowedTools []string          `json:"allowed_tools" wire:"default"`
}

// parse reads one file.
func parse(data []byte, project bool, getenv func(string) (string, bool)) ([]Server, error) {
	var f file
	if err := strict.Unmarshal(data, &f, strict.RejectUnknown); err != nil {
		return nil, err
	}
	if len(f.Servers) > maxServers {
		return nil, &strict.Error{Path: "mcpServers", Problem: fmt.Sprintf("has more than %d servers", maxServers)}
	}
	names := map[string]string{}
	var servers []Server
	for _, name := range slices.Sorted(maps.Keys(f.Servers)) {
		path, e := "mcpServers."+name, f.Servers[name]
		if err := checkName(name); err != nil {
			return nil, &strict.Error{Path: path, Problem: err.Error()}
		}
		if other, taken := names[key(name)]; taken {
			return nil, &strict.Error{Path: path, Problem: fmt.Sprintf("has a name too much like that of %q", other)}
		}
		names[key(name)] = name
		if err := e.check(path, project); err != nil {
			return nil, err
		}
		servers = append(servers, e.server(name, project, getenv))
	}
	return servers, nil
}

// check finds values that the types allow and the meaning does not.
func (e entry) check(path string, project bool) error {
	wrong := func(member, format string, a ...any) error {
		if member != "" {
			member = "." + member
		}
		return &strict.Error{Path: path + member, Problem: fmt.Sprintf(format, a...)}
	}
	switch {
	case e.Command == "" && e.URL == "":
		return wrong("", "has neither command nor url")
	case e.Command != "" && (e.URL != "" || len(e.Headers) > 0):
		return wrong("", "has a command and a url or headers: a server is a program or an address")
	case e.URL != "" && (len(e.Args) > 0 || len(e.Env) > 0 || e.Cwd != ""):
		return wrong("", "has a url and args, env or cwd, which are for programs")
	case e.Type == "sse":
		return wrong("type", `is "sse", which was replaced by streamable HTTP: use "http" and the server's address for that`)
	case e.Type != "" && e.Command != "" && e.Type != "stdio",
		e.Type != "" && e.URL != "" && e.Type != "http" && e.Type != "streamable-http":
		return wrong("type", `is %.40q: it is "stdio" with a command, "http" with a url, or left out`, e.Type)
	case e.TimeoutS != nil && !(*e.TimeoutS > 0 && *e.TimeoutS <= maxTimeout):
		return wrong("timeout_s", "must be above 0 and at most %d", maxTimeout)
	case e.URL != "":
		if problem := checkURL(e.URL, len(e.Headers) > 0); problem != "" {
			return wrong("url", "%s", problem)
		}
	}
	for _, words := range []struct {
		member string
		words  []string
		may    bool // stand for a variable
	}{
		{"command", []string{e.Command}, false},
		{"args", e.Args, false},
		{"cwd", []string{e.Cwd}, false},
		{"url", []string{e.URL}, false},
		{"allowed_tools", e.AllowedTools, false},
		{"env", flat(e.Env), !project},
		{"headers", flat(e.Headers), !project},
	} {
		if len(words.words) > 2*maxWords {
			return wrong(words.member, "has more than %d entries", maxWords)
		}
		for _, w := range words.words {
			switch {
			case len(w) > maxWordLength:
				return wrong(words.member, "has an entry of more than %d bytes", maxWordLength)
			case strings.ContainsRune(w, 0):
				return wrong(words.member, "has a NUL")
			case strings.Contains(w, "${") && project:
				return wrong(words.member, "has ${…}: only the personal mcp.json may use variables")
			case strings.Contains(w, "${") && !words.may:
				return wrong(words.member, "has ${…}: variables may stand in the values of env and headers alone")
			}
		}
	}
	for name := range e.Env {
		if name == "" || strings.ContainsAny(name, "=${") || strings.HasPrefix(name, "LD_") || strings.HasPrefix(name, "DYLD_") {
			return wrong("env", "has %.40q, which cannot be set", name)
		}
	}
	for name, value := range e.Headers {
		if !headerName(name) || strings.ContainsAny(value, "\r\n") {
			return wrong("headers", "has %.40q, which is no header or cannot be set", name)
		}
	}
	return nil
}

// checkURL says what is wrong with a server's address; "" if nothing is. Headers
// are taken for secrets, which do not travel in the clear.
func checkURL(raw string, headers bool) string {
	u, err := url.Parse(raw)
	switch {
	case err != nil || u.Hostname() == "" || (u.Scheme != "http" && u.Scheme != "https"):
		return "is no http or https URL"
	case u.User != nil:
		return "has a user: use headers"
	case u.Scheme == "http" && headers && !loopback(u.Hostname()):
		return "must be https, as there are headers"
	}
	return ""
}

func loopback(host string) bool {
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && addr.IsLoopback()
}

// headerName reports whether a header of that name may be set.
func headerName(name string) bool {
	switch strings.ToLower(name) {
	case "", "host", "content-length", "content-type", "accept", "connection", "transfer-encoding", "mcp-session-id":
		return false
	}
	return strings.IndexFunc(name, func(r rune) bool {
		return r <= ' ' || r >= 0x7f || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, r)
	}) < 0
}

func flat(m map[string]string) []string {
	return slices.AppendSeq(slices.Collect(maps.Keys(m)), maps.Values(m))
}

// server makes a checked entry into a Server.
func (e entry) server(name string, project bool, getenv func(string) (string, bool)) Server {
	s := Server{
		Name: name, Project: project, Command: e.Command, Args: e.Args, Cwd: e.Cwd, URL: e.URL,
		Disabled: e.Disabled, Timeout: DefaultTimeout, AllowedTools: e.AllowedTools,
	}
	if e.TimeoutS != nil {
		s.Timeout = time.Duration(math.Ceil(*e.TimeoutS * float64(time.Second)))
	}
	s.Env = s.expand(e.Env, false, getenv)
	s.Headers = s.expand(e.Headers, true, getenv)
	slices.SortFunc(s.secrets, func(a, b string) int { return len(b) - len(a) }) // one may be part of another
	return s
}
