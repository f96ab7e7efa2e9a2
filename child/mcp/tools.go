package mcp

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"nexus.internal/child/tool"
	"nexus.internal/protocol"
	"nexus.internal/protocol/mcpfile"
	"nexus.internal/protocol/shellword"
	"nexus.internal/protocol/strict"
	"nexus.internal/protocol/textcut"
)

// timeLimitKey is the member of a call's _meta that tells how long its answer is waited for, in ms.
const timeLimitKey = "nexus/timeout_ms"

// maxListed is how many resources one call lists.
const maxListed = 200

// makeTools makes the tools of a server out of what it has. The caller holds mu.
func (ms *managedServer) makeTools(list catalog) []tool.Tool {
	var tools []tool.Tool
	for _, o := range list.tools {
		tools = append(tools, &serverTool{
			limit: ms.timeLimit(), spec: o.spec, summary: fmt.Sprintf("call %.64q of the MCP server %s", o.name, ms.server.Name),
			run: func(ctx context.Context, in jsontext.Value) (tool.Result, error) { return ms.callTool(ctx, o.name, in) },
		})
	}
	add := func(name, description, schema, does string, run func(context.Context, jsontext.Value) (tool.Result, error)) {
		tools = append(tools, &serverTool{
			limit: ms.timeLimit(), summary: fmt.Sprintf("%s of the MCP server %s", does, ms.server.Name), run: run,
			spec: tool.Spec{Name: prefixedName(nameKey(ms.server.Name), name), Description: description, InputSchema: jsontext.Value(schema)},
		})
	}
	if list.resources {
		add(toolResources, fmt.Sprintf("List the resources of the MCP server %s.", ms.server.Name),
			`{"type":"object","properties":{"cursor":{"type":"string","description":"where an earlier list stopped"}},"additionalProperties":false}`,
			"list the resources", ms.listResources)
		add(toolResource, fmt.Sprintf("Read a resource of the MCP server %s.", ms.server.Name),
			`{"type":"object","properties":{"uri":{"type":"string"}},"required":["uri"],"additionalProperties":false}`,
			"read a resource", ms.readResource)
	}
	if len(list.prompts) > 0 {
		add(toolPrompt, fmt.Sprintf("Get a prompt of the MCP server %s: a text that says how to do something. It has:\n%s",
			ms.server.Name, strings.Join(list.prompts, "\n")),
			`{"type":"object","properties":{"name":{"type":"string"},"arguments":{"type":"object","additionalProperties":{"type":"string"}}},"required":["name"],"additionalProperties":false}`,
			"get a prompt", ms.getPrompt)
	}
	return tools
}

// serverTool is a tool that a server carries out. Its pointer tells it from others.
type serverTool struct {
	spec    tool.Spec
	summary string
	limit   time.Duration
	run     func(context.Context, jsontext.Value) (tool.Result, error)
}

func (r *serverTool) Spec() tool.Spec { return r.spec }

// Scope implements [tool.Scoped]. What a server says of its tools, such as that
// one only reads, is not relied on.
func (r *serverTool) Scope(jsontext.Value) (tool.Scope, error) {
	return tool.Scope{Action: protocol.ActionExternal, Summary: r.summary}, nil
}

func (r *serverTool) TimeLimit(jsontext.Value) time.Duration { return r.limit }

// timeLimit is how long a call may take in all: it is made again on another connection if
// the server did not get it.
func (ms *managedServer) timeLimit() time.Duration {
	return 2 * (connectTimeout + pingTimeout + ms.server.Timeout)
}

func (r *serverTool) Run(ctx context.Context, c tool.Call) (tool.Result, error) {
	return r.run(ctx, c.Input)
}

func (ms *managedServer) callTool(ctx context.Context, name string, in jsontext.Value) (tool.Result, error) {
	var answer callResult
	err := ms.call(ctx, func(ctx context.Context, c *client) error {
		answer = callResult{}
		return c.call(ctx, "tools/call", map[string]any{
			"name": name, "arguments": in, "_meta": map[string]any{timeLimitKey: ms.server.Timeout.Milliseconds()},
		}, &answer)
	})
	if err != nil {
		return tool.Result{}, err
	}
	return answer.build(ms.newBuilder()), nil
}

func (ms *managedServer) listResources(ctx context.Context, in jsontext.Value) (tool.Result, error) {
	var input struct {
		Cursor string `json:"cursor" wire:"default"`
	}
	if err := strict.Unmarshal(in, &input, strict.RejectUnknown); err != nil {
		return tool.Result{}, err
	}
	var page resourcesResult
	var templates templatesResult
	err := ms.call(ctx, func(ctx context.Context, c *client) error {
		page, templates = resourcesResult{}, templatesResult{}
		err := c.call(ctx, "resources/list", atCursor(input.Cursor), &page)
		if without(ms.log, err, "resources/list") {
			err = nil
		}
		if err != nil || input.Cursor != "" {
			return err
		}
		if err = c.call(ctx, "resources/templates/list", atCursor(""), &templates); ctx.Err() == nil {
			return nil // many servers have none and say so by an error
		}
		return err
	})
	if err != nil {
		return tool.Result{}, err
	}
	b := ms.newBuilder()
	for i, r := range page.Resources {
		if i == maxListed {
			b.line("[%d more are left out]", len(page.Resources)-i)
			break
		}
		if r != nil {
			b.line("%s", entryLine(r.URI, *r))
		}
	}
	if page.NextCursor != "" {
		b.line("[there are more: call this again with cursor %q]", page.NextCursor)
	}
	for i, t := range templates.Templates {
		if t != nil && i < maxListed {
			b.line("%s", entryLine(t.URITemplate, *t))
		}
	}
	if b.text.Len() == 0 {
		b.line("there are none")
	}
	return b.result(false), nil
}

// entryLine describes a resource.
func entryLine(uri string, r resource) string {
	line := uri
	for _, part := range []string{r.Name, r.MIMEType, strings.Join(strings.Fields(r.Description), " ")} {
		if part != "" {
			line += " · " + part
		}
	}
	return textcut.Clip(line, 500)
}

func (ms *managedServer) readResource(ctx context.Context, in jsontext.Value) (tool.Result, error) {
	var input struct {
		URI string `json:"uri"`
	}
	if err := strict.Unmarshal(in, &input, strict.RejectUnknown); err != nil {
		return tool.Result{}, err
	}
	var answer resourceResult
	err := ms.call(ctx, func(ctx context.Context, c *client) error {
		answer = resourceResult{}
		return c.call(ctx, "resources/read", map[string]string{"uri": input.URI}, &answer)
	})
	if err != nil {
		return tool.Result{}, err
	}
	return answer.build(ms.newBuilder()), nil
}

func (ms *managedServer) getPrompt(ctx context.Context, in jsontext.Value) (tool.Result, error) {
	var input struct {
		Name      string            `json:"name"`
		Arguments map[string]string `json:"arguments" wire:"default"`
	}
	if err := strict.Unmarshal(in, &input, strict.RejectUnknown); err != nil {
		return tool.Result{}, err
	}
	var answer promptResult
	err := ms.call(ctx, func(ctx context.Context, c *client) error {
		answer = promptResult{}
		return c.call(ctx, "prompts/get", map[string]any{"name": input.Name, "arguments": input.Arguments}, &answer)
	})
	if err != nil {
		return tool.Result{}, err
	}
	return answer.build(ms.newBuilder()), nil
}

// connectTool is the tool that stands for a server that has none yet: it starts
// the server. For one that a project names, it is the call that somebody allows
// or not, as any other.
type connectTool struct {
	server *managedServer
	why    string // it is not connected; "" for a project's that was not started yet
}

func (c connectTool) Spec() tool.Spec {
	s := c.server.server
	description := fmt.Sprintf("The MCP server %s is not connected", s.Name)
	if s.Project {
		description = fmt.Sprintf("Start the MCP server %s, which this project names (%s)", shellword.Quote(s.Name), textcut.Clip(s.target(), 300))
	}
	if c.why != "" {
		description += ": " + strings.TrimSuffix(c.why, ".")
	}
	if !s.Project {
		description += ". This tries to connect it"
	}
	return tool.Spec{
		Name:        prefixedName(nameKey(s.Name), toolConnect),
		Description: description + ". Its tools are there from the next message on.",
		InputSchema: jsontext.Value(`{"type":"object","properties":{},"additionalProperties":false}`),
	}
}

// Scope implements [tool.Scoped]. The whole command line of what a project names, or its address,
// counts as the program, so that an allowance is for that alone.
func (c connectTool) Scope(jsontext.Value) (tool.Scope, error) {
	s := c.server.server
	if !s.Project {
		return tool.Scope{Action: protocol.ActionExternal, Summary: fmt.Sprintf("connect the MCP server %s", s.Name)}, nil
	}
	scope := tool.Scope{
		Action: protocol.ActionExternal, Programs: []string{s.target()},
		Summary: fmt.Sprintf("start the MCP server %s of this project: %s", shellword.Quote(s.Name), textcut.Clip(s.target(), 300)),
	}
	if s.Command != "" { // its variables, which may be long, come behind it
		scope.Summary = fmt.Sprintf("run: %s, as the MCP server %s of this project", textcut.Clip(s.program(), 300), shellword.Quote(s.Name))
		scope.Action, scope.Command = protocol.ActionExecute, s.target()
	}
	return scope, nil
}

// Run waits for the server as any call does, pauses after failures included. It
// does not undo that the server was disconnected.
func (c connectTool) Run(ctx context.Context, call tool.Call) (tool.Result, error) {
	if err := strict.Unmarshal(call.Input, &struct{}{}, strict.RejectUnknown); err != nil {
		return tool.Result{}, err
	}
	c.server.mu.Lock()
	c.server.allow()
	c.server.mu.Unlock()
	if _, err := c.server.acquire(ctx); err != nil {
		return tool.Result{}, fmt.Errorf("the MCP server %s: %w", c.server.server.Name, err)
	}
	var names []string
	for _, t := range c.server.offeredTools() {
		names = append(names, t.Spec().Name)
	}
	if len(names) == 0 {
		return tool.Result{Text: "connected; it has no tools"}, nil
	}
	return tool.Result{Text: fmt.Sprintf("connected; from the next message on there are: %s", strings.Join(names, ", "))}, nil
}

// maxToolName is the longest name of a tool that all providers take, in bytes.
const maxToolName = 64

// The tools that we add for a server. Its own tools of these names get others.
const (
	toolConnect   = "connect"
	toolResources = "list_resources"
	toolResource  = "read_resource"
	toolPrompt    = "get_prompt"
)

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
