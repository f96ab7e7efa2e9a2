package mcp

import (
	"maps"
	"math"
	"net/url"
	"slices"
	"strings"
	"time"

	"nexus.internal/protocol/mcpfile"
	"nexus.internal/protocol/shellword"
)

const (
	// DefaultTimeout is how long a call may take (SPEC §4.9).
	DefaultTimeout = 60 * time.Second
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
		words = append(words, name+"="+shellword.Quote(s.Env[name]))
	}
	line := strings.Join(append(words, s.program()), " ")
	if s.Cwd != "" {
		line = "cd " + shellword.Quote(s.Cwd) + " && " + line
	}
	return line
}

// program is the server's program and its arguments, in words of a shell.
func (s Server) program() string { return shellword.Join(append([]string{s.Command}, s.Args...)...) }

// newServer makes a checked entry into a Server.
func newServer(e mcpfile.Entry, name string, project bool, getenv func(string) (string, bool)) Server {
	s := Server{
		Name: name, Project: project, Command: e.Command, Args: e.Args, Cwd: e.Cwd, URL: e.URL,
		Disabled: e.Disabled, Timeout: DefaultTimeout, AllowedTools: e.AllowedTools,
	}
	if e.TimeoutS != nil {
		s.Timeout = time.Duration(math.Ceil(*e.TimeoutS * float64(time.Second)))
	}
	s.Env = s.expand(e.Env, false, getenv)
	s.Headers = s.expand(e.Headers, true, getenv)
	if at, err := url.Parse(s.URL); err == nil && s.Problem == "" {
		if err := reach.CheckHost(at.Hostname()); err != nil { // also where a proxy makes the connection
			s.Problem = err.Error()
		}
	}
	slices.SortFunc(s.secrets, func(a, b string) int { return len(b) - len(a) }) // one may be part of another
	return s
}
