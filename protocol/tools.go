package protocol

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"sync"

	"nexus.internal/protocol/strict"
	"nexus.internal/protocol/suggest"
)

// BuiltinTools are the names of the tools that agents have without MCP servers, sorted
// (SPEC §4.4). It must not be changed.
var BuiltinTools = []string{
	"apply_patch", "copy_file", "delete_file", "edit_file", "glob", "job_input", "job_list", "job_output", "job_start", "job_stop", "list_directory", "move_file", "nexus_cancel", "nexus_create",
	"nexus_destroy", "nexus_send", "nexus_shutdown", "nexus_status", "read_file", "search_text", "shell", "sleep", "todo", "web_fetch", "write_file",
}

// serverTool is the name of a tool of an MCP server (SPEC §4.9). Servers connect and
// change their tools at any time, so any such name may be the name of a tool.
var serverTool = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^mcp_[A-Za-z0-9_-]{1,60}$`) })

// CheckToolName reports why name can be the name of no tool: it is neither that of a
// built-in tool nor one that a tool of an MCP server could have. A rule for it would
// do nothing, which whoever made the rule did not mean.
func CheckToolName(name string) error {
	if slices.Contains(BuiltinTools, name) || serverTool().MatchString(name) {
		return nil
	}
	problem := fmt.Sprintf("is %.64q, which is no tool", name)
	if near := suggest.Nearest(name, BuiltinTools); near != "" {
		return fmt.Errorf("%s; did you mean %q?", problem, near)
	}
	return fmt.Errorf("%s, want a tool's name such as shell, or one of an MCP server such as mcp_files_read", problem)
}

// CheckTools reports the first of p's tools that cannot be a tool and that held does
// not name already: a session may have been saved with names that are not known any
// more. The error is a *strict.Error.
func (p Permissions) CheckTools(held Permissions) error {
	for i, name := range p.DisabledTools {
		if err := CheckToolName(name); err != nil && !slices.Contains(held.DisabledTools, name) {
			return &strict.Error{Path: fmt.Sprintf("disabled_tools[%d]", i), Problem: err.Error()}
		}
	}
	for name := range p.Tools {
		if _, has := held.Tools[name]; has {
			continue
		}
		if err := CheckToolName(name); err != nil {
			return &strict.Error{Path: "tools." + name, Problem: err.Error()}
		}
	}
	return nil
}

// KnownTools is p without what it says of names that can be no tool's, and so does
// nothing.
func (p Permissions) KnownTools() Permissions {
	unknown := func(name string) bool { return CheckToolName(name) != nil }
	if slices.ContainsFunc(p.DisabledTools, unknown) {
		p.DisabledTools = slices.DeleteFunc(slices.Clone(p.DisabledTools), unknown)
	}
	p.Tools = maps.Clone(p.Tools)
	maps.DeleteFunc(p.Tools, func(name string, _ ToolRule) bool { return unknown(name) })
	return p
}
