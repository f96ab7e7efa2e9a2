package mcp

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"nexus.internal/protocol/mcpfile"
)

// maxToolName is the longest name of a tool that all providers take, in bytes.
const maxToolName = 64

// The tools that we add for a server. Its own tools of these names get others.
const (
	toolConnect   = "connect"
	toolResources = "list_resources"
	toolResource  = "read_resource"
	toolPrompt    = "get_prompt"
)

// nameKey is [mcpfile.Key].
func nameKey(name string) string { return mcpfile.Key(name) }

// ToolPrefix is how the names of all tools of the server begin, and of no other
// tool.
func (s Server) ToolPrefix() string { return prefixedName(nameKey(s.Name), "") }

// replaceOthers replaces each character but letters, digits and the others.
func replaceOthers(text string, by rune, others string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', strings.ContainsRune(others, r):
			return r
		default:
			return by
		}
	}, text)
}

// prefixedName is the name of a tool that we add for the server of that key.
func prefixedName(server, tool string) string { return "mcp_" + server + "_" + tool }

// toolName is the name of a server's tool: mcp_SERVER_TOOL. One that cannot be
// written so is marked by a digest, and thus is the same every time.
func toolName(server, tool string) string {
	name := prefixedName(server, replaceOthers(tool, '_', "_-"))
	switch tool {
	case toolConnect, toolResources, toolResource, toolPrompt:
	default:
		if len(name) <= maxToolName && name == prefixedName(server, tool) && tool != "" {
			return name
		}
	}
	sum := sha256.Sum256([]byte(tool))
	mark := "_" + hex.EncodeToString(sum[:4])
	return name[:min(len(name), maxToolName-len(mark))] + mark
}
