// Package mcpfile is the format of mcp.json, which names MCP servers (SPEC §4.9): the
// agent's process uses them, and the server checks the file before.
package mcpfile

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"nexus.internal/protocol"
	"nexus.internal/protocol/safefile"
	"nexus.internal/protocol/strict"
)

const (
	// MaxSize is how large a file may be, in bytes.
	MaxSize = 1 << 20

	maxTimeout    = 3600     // seconds
	maxServers    = 32       // in one file
	maxNameLength = 32       // bytes, of a server
	maxWords      = 256      // arguments, variables, headers, allowed tools, each
	maxWordLength = 32 << 10 // bytes, of each of these
)

// file is mcp.json as a whole.
type file struct {
	Servers map[string]Entry `json:"mcpServers" wire:"default"`
}

// Entry is one server, as it is written. It is a program if it has a Command, else it
// is reached at its URL.
type Entry struct {
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

// Error says which file is wrong, where and how.
type Error struct {
	Path string
	// Line and Column begin at 1; a column counts bytes. They are 0 where the error
	// is about no place in the file.
	Line, Column int
	Err          error
}

func (e *Error) Error() string {
	if e.Line == 0 {
		return fmt.Sprintf("%s: %v", e.Path, e.Err)
	}
	return fmt.Sprintf("%s:%d:%d: %v", e.Path, e.Line, e.Column, e.Err)
}

func (e *Error) Unwrap() error { return e.Err }

// Check reports why a person's own file at path cannot be used; nil if it can, or if
// there is none. It never waits for the other end of a pipe. The error is an *Error.
func Check(path string) error {
	data, err := safefile.ReadLinked(path, MaxSize)
	switch e, ok := errors.AsType[*fs.PathError](err); {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case ok: // it names the path again
		return &Error{Path: path, Err: e.Err}
	case err != nil:
		return &Error{Path: path, Err: err}
	}
	_, err = Parse(path, data, false)
	return err
}

// Parse reads what the file at path says, which holds data: its servers by name. A
// project's file may say less than a person's own. The error is an *Error.
func Parse(path string, data []byte, project bool) (map[string]Entry, error) {
	servers, err := parse(data, project)
	if err != nil {
		line, column := strict.Place(data, err)
		return nil, &Error{Path: path, Line: line, Column: column, Err: err}
	}
	return servers, nil
}

func parse(data []byte, project bool) (map[string]Entry, error) {
	var f file
	if err := strict.Unmarshal(data, &f, strict.RejectUnknown); err != nil {
		return nil, err
	}
	if len(f.Servers) > maxServers {
		return nil, &strict.Error{Path: "mcpServers", Problem: fmt.Sprintf("has more than %d servers", maxServers)}
	}
	names := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(f.Servers)) {
		path := "mcpServers." + name
		if err := checkName(name); err != nil {
			return nil, &strict.Error{Path: path, Problem: err.Error()}
		}
		if other, taken := names[Key(name)]; taken {
			return nil, &strict.Error{Path: path, Problem: fmt.Sprintf("has a name too much like that of %q", other)}
		}
		names[Key(name)] = name
		if err := f.Servers[name].check(path, project); err != nil {
			return nil, err
		}
	}
	return f.Servers, nil
}

// Key is the name of a server within the names of tools: letters, digits and
// hyphens. It has no underscore, so that no two servers can have a tool of one
// name.
func Key(name string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, name)
}

// checkName says what is wrong with a server's name.
func checkName(name string) error {
	switch {
	case len(name) > maxNameLength:
		return fmt.Errorf("has a name of more than %d bytes", maxNameLength)
	case strings.Trim(Key(name), "-") == "":
		return errors.New("has a name without a letter or a digit")
	}
	return nil
}

// check finds values that the types allow and the meaning does not, those of one member first: an error
// about the server as a whole hides what else is wrong with it.
func (e Entry) check(path string, project bool) error {
	wrong := func(member, format string, a ...any) error {
		return &strict.Error{Path: path + "." + member, Problem: fmt.Sprintf(format, a...)}
	}
	switch {
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
	if member, problem := e.checkWords(project); problem != "" {
		return wrong(member, "%s", problem)
	}
	for _, name := range slices.Sorted(maps.Keys(e.Env)) {
		switch {
		case !protocol.IsVariableName(name):
			return wrong("env."+name, "has no name of a variable: want letters, digits and _, no digit first")
		case strings.HasPrefix(name, "LD_"), strings.HasPrefix(name, "DYLD_"):
			return wrong("env."+name, "cannot be set")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(e.Headers)) {
		if !headerName(name) || strings.ContainsAny(e.Headers[name], "\r\n") {
			return wrong("headers."+name, "is no header or cannot be set")
		}
	}
	var problem string
	switch {
	case e.Command == "" && e.URL == "":
		problem = "has neither command nor url"
	case e.Command != "" && (e.URL != "" || len(e.Headers) > 0):
		problem = "has a command and a url or headers: a server is a program or an address"
	case e.URL != "" && (len(e.Args) > 0 || len(e.Env) > 0 || e.Cwd != ""):
		problem = "has a url and args, env or cwd, which are for programs"
	default:
		return nil
	}
	return &strict.Error{Path: path, Problem: problem}
}

// checkWords finds the first member whose texts are too many or too long, or have what they may not
// have; "", "" if there is none.
func (e Entry) checkWords(project bool) (member, problem string) {
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
			return words.member, fmt.Sprintf("has more than %d entries", maxWords)
		}
		for _, w := range words.words {
			switch {
			case len(w) > maxWordLength:
				return words.member, fmt.Sprintf("has an entry of more than %d bytes", maxWordLength)
			case strings.ContainsRune(w, 0):
				return words.member, "has a NUL"
			case strings.Contains(w, "${") && project:
				return words.member, "has ${…}: only the personal mcp.json may use variables"
			case strings.Contains(w, "${") && !words.may:
				return words.member, "has ${…}: variables may stand in the values of env and headers alone"
			}
		}
	}
	return "", ""
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
