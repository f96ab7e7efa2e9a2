package mcp

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"go.uber.org/zap"

	"nexus.internal/child/tool"
	"nexus.internal/protocol/textcut"
)

// What is taken from a server (SPEC §4.9); the rest is left out.
const (
	maxTools       = 256
	maxPages       = 64
	maxDescription = 2 << 10   // bytes, of a tool
	maxSchema      = 16 << 10  // bytes, of a tool
	maxCatalog     = 256 << 10 // bytes, of all descriptions and schemas
	maxPrompts     = 32
)

// catalog is what a server has.
type catalog struct {
	tools     []offer
	prompts   []string // a line for each
	resources bool
	note      string // what was left out; "" if nothing was
}

// offer is one tool of a server.
type offer struct {
	name string // on the server
	spec tool.Spec
}

// list asks the server what it has.
func (s *session) list(ctx context.Context) (catalog, error) {
	var c catalog
	can := s.offers.Capabilities
	if isObject(can.Tools) {
		if err := s.listTools(ctx, &c); err != nil {
			return catalog{}, err
		}
	}
	if isObject(can.Prompts) {
		if err := s.listPrompts(ctx, &c); err != nil && !without(s.log, err, "prompts/list") {
			return catalog{}, err
		}
	}
	c.resources = isObject(can.Resources)
	return c, nil
}

// without reports whether err says that the server has no such method, although it declared
// what the method lists: then it has none of that, and the rest is of use.
func without(log *zap.Logger, err error, method string) bool {
	answer, ok := errors.AsType[*rpcError](err)
	if !ok || answer.Code != codeMethodNotFound {
		return false
	}
	log.Warn("mcp server declares what it does not have", zap.String("method", method))
	return true
}

func (s *session) listTools(ctx context.Context, c *catalog) error {
	var left leftOut
	size := 0
	taken := map[string]bool{}
	cursor := ""
	for range maxPages {
		var page toolsResult
		if err := s.client.call(ctx, "tools/list", atCursor(cursor), &page); err != nil {
			return fmt.Errorf("list its tools: %w", err)
		}
		for _, t := range page.Tools {
			if t == nil || s.server.AllowedTools != nil && !slices.Contains(s.server.AllowedTools, t.Name) {
				continue
			}
			if len(c.tools) == maxTools {
				left.many = true
				break
			}
			spec, err := describe(s.server, t)
			if err != nil {
				left.add(t.Name, err.Error())
				continue
			}
			if taken[spec.Name] {
				left.add(t.Name, "is there twice")
				continue
			}
			if size += len(spec.Description) + len(spec.InputSchema); size > maxCatalog {
				left.many = true
				break
			}
			taken[spec.Name] = true
			c.tools = append(c.tools, offer{t.Name, spec})
		}
		if cursor = page.NextCursor; cursor == "" || left.many {
			c.note = left.String()
			return nil
		}
	}
	left.many = true
	c.note = left.String()
	return nil
}

// atCursor are the parameters of a list that goes on at a cursor; "" is its beginning.
func atCursor(cursor string) map[string]string {
	if cursor == "" {
		return map[string]string{}
	}
	return map[string]string{"cursor": cursor}
}

// leftOut says which tools were not taken.
type leftOut struct {
	many    bool
	reasons []string // of at most 8
}

func (l *leftOut) add(name, reason string) {
	if len(l.reasons) < 8 {
		l.reasons = append(l.reasons, fmt.Sprintf("%.64q %s", name, reason))
	}
}

func (l *leftOut) String() string {
	var parts []string
	if l.many {
		parts = append(parts, "it has more tools than are taken: allowed_tools in mcp.json chooses")
	}
	if len(l.reasons) > 0 {
		parts = append(parts, "left out: "+strings.Join(l.reasons, ", "))
	}
	return strings.Join(parts, "; ")
}

// describe makes a server's tool into one of ours.
func describe(server Server, t *remoteTool) (tool.Spec, error) {
	var object map[string]any
	if !isObject(t.InputSchema) || json.Unmarshal(t.InputSchema, &object, lenient) != nil {
		return tool.Spec{}, errors.New("has no schema that is an object")
	}
	schema, err := json.Marshal(object, json.Deterministic(true))
	if err != nil {
		return tool.Spec{}, fmt.Errorf("has a schema that cannot be written: %w", err)
	}
	switch {
	case len(schema) > maxSchema:
		return tool.Spec{}, fmt.Errorf("has a schema of more than %d bytes", maxSchema)
	case object["type"] != "object":
		return tool.Spec{}, fmt.Errorf(`has a schema whose type is not "object"`)
	}
	text := strings.TrimSpace(t.Description)
	if text == "" {
		text = t.Title
	}
	return tool.Spec{
		Name:        toolName(nameKey(server.Name), t.Name),
		Description: textcut.Clip(fmt.Sprintf("%s (of the MCP server %s)", textcut.Clip(text, maxDescription), server.Name), maxDescription+100),
		InputSchema: jsontext.Value(schema),
	}, nil
}

func (s *session) listPrompts(ctx context.Context, c *catalog) error {
	var page promptsResult
	if err := s.client.call(ctx, "prompts/list", atCursor(""), &page); err != nil {
		return fmt.Errorf("list its prompts: %w", err)
	}
	for _, p := range page.Prompts {
		if p == nil || len(c.prompts) == maxPrompts {
			continue
		}
		var arguments []string
		for _, a := range p.Arguments {
			switch {
			case a == nil:
			case a.Required:
				arguments = append(arguments, a.Name)
			default:
				arguments = append(arguments, a.Name+"?")
			}
		}
		line := fmt.Sprintf("%s(%s)", p.Name, strings.Join(arguments, ", "))
		if p.Description != "" {
			line += ": " + p.Description
		}
		c.prompts = append(c.prompts, textcut.Line(line, 200))
	}
	return nil
}
