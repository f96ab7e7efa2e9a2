package backup

import (
	"io/fs"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/auth"
	"nexus.internal/bridge/logfile"
	"nexus.internal/cmd/internal/config"
	"nexus.internal/protocol/homeformat"
	"nexus.internal/protocol/mcpfile"
)

// format is the version of the layout. Restore reads those before it, too.
const format = 3

const (
	firstName = "nexus-backup.json"     // of the member that says what it is
	lastName  = "nexus-backup.end.json" // of the member that says that it is whole
)

// Bounds of what Restore reads. A home has less.
const (
	maxFiles = 1_000_000
	maxBytes = 256 << 30
	maxNote  = 64 << 10 // of the first and the last member
)

// first is what the first member says.
type first struct {
	Format  uint32    `json:"format"`
	Version string    `json:"version"` // of the program
	Created time.Time `json:"created_at"`
	Keys    bool      `json:"keys"`
	// Cluster and Machine are those whose home it is, if of one.
	Cluster string `json:"cluster,omitzero" wire:"default"`
	Machine string `json:"machine,omitzero" wire:"default"`
}

// last is what the last member says: what was before it, but for the first.
type last struct {
	Files int   `json:"files"`
	Bytes int64 `json:"bytes"`
}

// Report says what was saved or restored.
type Report struct {
	Sessions int   `json:"sessions"`
	Files    int   `json:"files"`
	Bytes    int64 `json:"bytes"` // of the files
	// LeftOut are names in the home that are not nexus's, so they are not saved.
	LeftOut []string `json:"left_out,omitempty"`
}

// What is saved of the home itself, beside directories.
var (
	written = []string{"config.json", "config.schema.json", "mcp.json", "NEXUS.md"} // by people; may be links
	logs    = logfile.TierFiles("audit.jsonl")
	keys    = []string{"keys.json", "run/signatures"}
)

// passing is what is in a home and not saved: it belongs to a server or a terminal, or can be made again.
var passing = regexp.MustCompile(`^(run|logs|cache|cluster|terminal-history\.jsonl|server(-[0-9]+)?\.key)$`)

// machineForm is the form of the names of clusters and machines.
var machineForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$`)

// member are the paths that a backup may have.
var member = regexp.MustCompile(
	`^(format\.json|config(\.schema)?\.json|context\.json|mcp\.json|NEXUS\.md|keys\.json|audit(-limited|-excess)?\.jsonl(\.[123])?|run/(last|signatures)|` +
		`plans/(?P<plan>[^/]+)\.jsonl|plans/tasks/[0-9a-f]{32}\.json|(?P<dir>sessions|run/temp)/(?P<agent>[^/]+)\.(jsonl|usage|outcomes|files/[0-9a-f]{64}|(events|records)/[0-9]{20}\.jsonl))$`)

// allowed reports whether a member of that name is one of a home.
func allowed(name string) bool {
	parts := member.FindStringSubmatch(name)
	if parts == nil || path.Clean(name) != name || !filepath.IsLocal(filepath.FromSlash(name)) || strings.ContainsAny(name, "\\\x00") {
		return false
	}
	part := func(of string) string { return parts[member.SubexpIndex(of)] }
	switch part("dir") {
	case "sessions":
		return api.ValidAgentID(part("agent")) && !api.IsTemp(part("agent"))
	case "run/temp":
		return api.ValidAgentID(part("agent")) && api.IsTemp(part("agent"))
	}
	return part("plan") == "" || api.ValidPlanID(part("plan"))
}

// partOfSession is what a session has among the others, whether it is saved or can be made again.
var partOfSession = regexp.MustCompile(`^(.+)\.(jsonl|usage|outcomes|files|events|records|next|home|undo)$`)

// ofSession reports whether what stands among the sessions is of nexus; a name that begins with a dot is of a write that was cut off.
func ofSession(entry fs.DirEntry) bool {
	parts := partOfSession.FindStringSubmatch(entry.Name())
	return strings.HasPrefix(entry.Name(), ".") || parts != nil && api.ValidAgentID(parts[1]) && (parts[2] != "jsonl" || entry.Type().IsRegular())
}

// maxSize bounds a file, in bytes: what reads a larger one refuses it.
func maxSize(name string) int64 {
	switch name {
	case "config.json", "config.schema.json":
		return config.MaxFileSize
	case homeformat.Name:
		return homeformat.MaxSize
	case "mcp.json":
		return mcpfile.MaxSize
	case "keys.json":
		return auth.MaxRecords
	}
	return maxBytes
}

func isSession(name string) bool {
	dir := path.Dir(name)
	return (dir == "sessions" || dir == "run/temp") && path.Ext(name) == ".jsonl"
}

// ofLines reports whether a file is only ever appended to, by whole lines.
func ofLines(name string) bool {
	switch path.Ext(name) {
	case ".jsonl", ".outcomes":
		return true
	}
	return slices.Contains(logs, name)
}
