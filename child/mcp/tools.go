package mcp

import (
	"context"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"nexus.internal/child/tool"
	"nexus.internal/protocol"
	"nexus.internal/protocol/strict"
	"nexus.internal/protocol/textcut"
)

// maxListed is how many resources one call lists.
const maxListed = 200

// makeTools makes the tools of a server out of what it has. The caller holds mu.
func (h *host) makeTools(list catalog) []tool.Tool {
	var tools []tool.Tool
	for _, o := range list.tools {
		tools = append(tools, remote{
			spec: o.spec, summary: fmt.Sprintf("call %.64q of the MCP server %s", o.name, h.server.Name),
			run: func(ctx context.Context, in jsontext.Value) (tool.Result, error) { return h.callTool(ctx, o.name, in) },
		})
	}
	add := func(name, description, schema, does string, run func(context.Context, jsontext.Value) (tool.Result, error)) {
		tools = append(tools, remote{
			summary: fmt.Sprintf("%s of the MCP server %s", does, h.server.Name), run: run,
			spec: tool.Spec{Name: ownName(key(h.server.Name), name), Description: description, InputSchema: jsontext.Value(schema)},
		})
	}
	if list.resources {
		add(toolResources, fmt.Sprintf("List the resources of the MCP server %s.", h.server.Name),
			`{"type":"object","properties":{"cursor":{"type":"string","description":"where an earlier list stopped"}},"additionalProperties":false}`,
			"list the resources", h.listResources)
		add(toolResource, fmt.Sprintf("Read a resource of the MCP server %s.", h.server.Name),
			`{"type":"object","properties":{"uri":{"type":"string"}},"required":["uri"],"additionalProperties":false}`,
			"read a resource", h.readResource)
	}
	if len(list.prompts) > 0 {
		add(toolPrompt, fmt.Sprintf("Get a prompt of the MCP server %s: a text that says how to do something. It has:\n%s",
			h.server.Name, strings.Join(list.prompts, "\n")),
			`{"type":"object","properties":{"name":{"type":"string"},"arguments":{"type":"object","additionalProperties":{"type":"string"}}},"required":["name"],"additionalProperties":false}`,
			"get a prompt", h.getPrompt)
	}
	return tools
}

// remote is a tool that a server carries out.
type remote struct {
	spec    tool.Spec
	summary string
	run     func(context.Context, jsontext.Value) (tool.Result, error)
}

func (r remote) Spec() tool.Spec { return r.spec }

// Scope implements [tool.Scoped]. What a server says of its tools, such as that
// one only reads, is not relied on.
func (r remote) Scope(jsontext.Value) (tool.Scope, error) {
	return tool.Scope{Action: protocol.ActionExternal, Summary: r.summary}, nil
}

func (r remote) Run(ctx context.Context, in jsontext.Value) (tool.Result, error) {
	return r.run(ctx, in)
}

func (h *host) callTool(ctx context.Context, name string, in jsontext.Value) (tool.Result, error) {
	var answer *sdk.CallToolResult
	err := h.call(ctx, func(ctx context.Context, c *sdk.ClientSession) (err error) {
		answer, err = c.CallTool(ctx, &sdk.CallToolParams{Name: name, Arguments: in})
		return err
	})
	if err != nil {
		return tool.Result{}, err
	}
	b := h.newBuilder()
	for _, c := range answer.Content {
		b.content(c)
	}
	if b.text.Len() == 0 && answer.StructuredContent != nil {
		b.structured(answer.StructuredContent)
	}
	return b.result(answer.IsError), nil
}

func (h *host) listResources(ctx context.Context, in jsontext.Value) (tool.Result, error) {
	var input struct {
		Cursor string `json:"cursor" wire:"default"`
	}
	if err := strict.Unmarshal(in, &input, strict.RejectUnknown); err != nil {
		return tool.Result{}, err
	}
	var page *sdk.ListResourcesResult
	var templates *sdk.ListResourceTemplatesResult
	err := h.call(ctx, func(ctx context.Context, c *sdk.ClientSession) (err error) {
		if page, err = c.ListResources(ctx, &sdk.ListResourcesParams{Cursor: input.Cursor}); err != nil || input.Cursor != "" {
			return err
		}
		if templates, err = c.ListResourceTemplates(ctx, nil); ctx.Err() == nil {
			return nil // many servers have none and say so by an error
		}
		return err
	})
	if err != nil {
		return tool.Result{}, err
	}
	b := h.newBuilder()
	for i, r := range page.Resources {
		if i == maxListed {
			b.line("[%d more are left out]", len(page.Resources)-i)
			break
		}
		if r != nil {
			b.line("%s", entryLine(r.URI, r.Name, r.MIMEType, r.Description))
		}
	}
	if page.NextCursor != "" {
		b.line("[there are more: call this again with cursor %q]", page.NextCursor)
	}
	if templates != nil {
		for i, t := range templates.ResourceTemplates {
			if t != nil && i < maxListed {
				b.line("%s", entryLine(t.URITemplate, t.Name, t.MIMEType, t.Description))
			}
		}
	}
	if b.text.Len() == 0 {
		b.line("there are none")
	}
	return b.result(false), nil
}

// entryLine describes a resource.
func entryLine(uri, name, mime, description string) string {
	line := uri
	for _, part := range []string{name, mime, strings.Join(strings.Fields(description), " ")} {
		if part != "" {
			line += " · " + part
		}
	}
	return textcut.Clip(line, 500)
}

func (h *host) readResource(ctx context.Context, in jsontext.Value) (tool.Result, error) {
	var input struct {
		URI string `json:"uri"`
	}
	if err := strict.Unmarshal(in, &input, strict.RejectUnknown); err != nil {
		return tool.Result{}, err
	}
	var answer *sdk.ReadResourceResult
	err := h.call(ctx, func(ctx context.Context, c *sdk.ClientSession) (err error) {
		answer, err = c.ReadResource(ctx, &sdk.ReadResourceParams{URI: input.URI})
		return err
	})
	if err != nil {
		return tool.Result{}, err
	}
	b := h.newBuilder()
	for _, c := range answer.Contents {
		b.resource(c)
	}
	return b.result(false), nil
}

func (h *host) getPrompt(ctx context.Context, in jsontext.Value) (tool.Result, error) {
	var input struct {
		Name      string            `json:"name"`
		Arguments map[string]string `json:"arguments" wire:"default"`
	}
	if err := strict.Unmarshal(in, &input, strict.RejectUnknown); err != nil {
		return tool.Result{}, err
	}
	var answer *sdk.GetPromptResult
	err := h.call(ctx, func(ctx context.Context, c *sdk.ClientSession) (err error) {
		answer, err = c.GetPrompt(ctx, &sdk.GetPromptParams{Name: input.Name, Arguments: input.Arguments})
		return err
	})
	if err != nil {
		return tool.Result{}, err
	}
	b := h.newBuilder()
	for _, m := range answer.Messages {
		if m != nil {
			b.line("%s:", m.Role)
			b.content(m.Content)
		}
	}
	return b.result(false), nil
}

// connector is the tool that stands for a server that has none yet: it starts
// the server. For one that a project names, it is the call that somebody allows
// or not, as any other.
type connector struct {
	host *host
	why  string // it is not connected; "" for a project's that nobody allowed yet
}

func (c connector) Spec() tool.Spec {
	s := c.host.server
	description := fmt.Sprintf("The MCP server %s is not connected", s.Name)
	if s.Project {
		description = fmt.Sprintf("Start the MCP server %s, which this project names (%s)", s.Name, textcut.Clip(s.target(), 300))
	}
	if c.why != "" {
		description += ": " + strings.TrimSuffix(c.why, ".")
	}
	if !s.Project {
		description += ". This tries to connect it"
	}
	return tool.Spec{
		Name:        ownName(key(s.Name), toolConnect),
		Description: description + ". Its tools are there from the next message on.",
		InputSchema: jsontext.Value(`{"type":"object","properties":{},"additionalProperties":false}`),
	}
}

// Scope implements [tool.Scoped]. The whole command line of what a project names
// counts as the program, so that an allowance is for that alone.
func (c connector) Scope(jsontext.Value) (tool.Scope, error) {
	s := c.host.server
	if !s.Project {
		return tool.Scope{Action: protocol.ActionExternal, Summary: fmt.Sprintf("connect the MCP server %s", s.Name)}, nil
	}
	scope := tool.Scope{
		Action:  protocol.ActionExternal,
		Summary: fmt.Sprintf("start the MCP server %s of this project: %s", s.Name, textcut.Clip(s.target(), 300)),
	}
	if s.Command != "" {
		scope.Action, scope.Command, scope.Programs = protocol.ActionExecute, s.target(), []string{s.target()}
	}
	return scope, nil
}

// Run waits for the server as any call does, pauses after failures included. It
// does not undo that the server was disconnected.
func (c connector) Run(ctx context.Context, in jsontext.Value) (tool.Result, error) {
	if err := strict.Unmarshal(in, &struct{}{}, strict.RejectUnknown); err != nil {
		return tool.Result{}, err
	}
	c.host.mu.Lock()
	c.host.allowed = true
	c.host.mu.Unlock()
	if _, err := c.host.acquire(ctx); err != nil {
		return tool.Result{}, fmt.Errorf("the MCP server %s: %w", c.host.server.Name, err)
	}
	var names []string
	for _, t := range c.host.offered() {
		names = append(names, t.Spec().Name)
	}
	if len(names) == 0 {
		return tool.Result{Text: "connected; it has no tools"}, nil
	}
	return tool.Result{Text: fmt.Sprintf("connected; from the next message on there are: %s", strings.Join(names, ", "))}, nil
}
