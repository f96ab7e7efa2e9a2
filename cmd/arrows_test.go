// Package cmd_test holds the one test that is about all packages at once.
package cmd_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
)

const module = "nexus.internal/"

// pkg is what go list says of one package. Deps is transitive.
type pkg struct {
	ImportPath                               string
	Imports, Deps, TestImports, XTestImports []string
}

// rule forbids imports to the packages it is about. Names are relative to the
// module for our own packages; "x/..." stands for x and everything below it.
type rule struct {
	name   string
	of     []string // the packages that the rule binds
	except []string
	deny   []string
	allow  []string // of what deny names, these are fine
	deps   bool     // looks at what is reached by way of others too
	tests  bool     // binds tests as well
}

// arrows are the walls of the house; those that a reader should know stand in
// CONTRIBUTING.md, "Where things go".
var arrows = []rule{
	{
		name: "protocol knows nobody",
		of:   []string{"protocol/..."}, deny: []string{"..."}, allow: []string{"protocol/..."}, deps: true,
	},
	{
		name: "what cuts text knows nothing else",
		of:   []string{"protocol/textcut"}, deny: []string{"..."}, deps: true,
	},
	{
		name: "safefile knows files alone",
		of:   []string{"protocol/safefile"}, deny: []string{"..."}, deps: true,
	},
	{
		name: "the supervisor's root knows only protocol",
		of:   []string{"supervisor"}, deny: []string{"..."}, allow: []string{"protocol/..."}, deps: true,
	},
	{
		name: "the supervisor's root is pure state and time",
		of:   []string{"supervisor"}, deny: []string{"os/exec", "net/http", "net"},
	},
	{
		name: "the supervisor's HTTP is the broker's",
		of:   []string{"supervisor/..."}, except: []string{"supervisor/broker/..."}, deny: []string{"net/http"},
	},
	{
		name: "the store knows what it keeps and nobody who asks for it",
		of:   []string{"supervisor/store/..."}, deny: []string{"..."}, allow: []string{"protocol/...", "supervisor", "supervisor/store/..."}, deps: true,
	},
	{
		name: "the supervisor knows neither who asks nor what a child is made of",
		of:   []string{"supervisor/..."}, deny: []string{"bridge/...", "child/...", "cmd/..."}, deps: true,
	},
	{
		name: "the bridge reaches agents by the supervisor alone",
		of:   []string{"bridge/..."}, deps: true,
		deny: []string{"child/...", "cmd/...", "supervisor/..."}, allow: []string{"supervisor", "supervisor/store/..."},
	},
	{
		name: "HTTP knows no methods and no agents' registry",
		of:   []string{"bridge/httpd"}, deny: []string{"bridge/agents", "bridge/methods", "bridge"}, deps: true,
	},
	{
		name: "calls know no HTTP server and no agents' registry",
		of:   []string{"bridge/rpc"}, deny: []string{"bridge/httpd", "bridge/events", "bridge/agents", "bridge/methods", "bridge"}, deps: true,
	},
	{
		name: "event streams know no HTTP server and no agents' registry",
		of:   []string{"bridge/events"}, deny: []string{"bridge/httpd", "bridge/agents", "bridge/methods", "bridge"}, deps: true,
	},
	{
		name: "a child knows its pipes and nothing else",
		of:   []string{"child/...", "cmd/nexus-child"}, deny: []string{"bridge/...", "supervisor/..."}, deps: true,
	},
	{
		name: "the server does not link the agent",
		of:   []string{"cmd/nexus", "cmd/nexus-rpc"}, deny: []string{"child/..."}, deps: true,
	},
	{
		name: "metrics have one package",
		of:   []string{"..."}, except: []string{"bridge/metrics"}, deny: []string{"github.com/prometheus/..."},
	},
	{
		name: "a child does not carry the server's metrics",
		of:   []string{"child/...", "cmd/nexus-child"}, deny: []string{"github.com/prometheus/..."}, deps: true,
	},
	{
		name: "traces have one exporter",
		of:   []string{"..."}, except: []string{"cmd/internal/telemetry/..."}, deny: []string{"go.opentelemetry.io/..."},
	},
	{
		name: "only the server exports traces",
		of:   []string{"child/...", "cmd/nexus-child", "cmd/nexus-rpc", "bridge/...", "supervisor/..."}, deny: []string{"cmd/internal/telemetry/...", "go.opentelemetry.io/..."}, deps: true,
	},
	{
		name: "the SDK of MCP is for nexus mcp and for tests",
		of:   []string{"..."}, except: []string{"cmd/internal/mcpserve"}, deny: []string{"github.com/modelcontextprotocol/..."},
	},
	{
		name: "a Go program with the client carries nothing of the server",
		of:   []string{"bridge/client"}, deps: true,
		deny: []string{"github.com/prometheus/...", "go.opentelemetry.io/...", "modernc.org/...", "go.uber.org/...", "charm.land/...", "github.com/spf13/...", "github.com/modelcontextprotocol/..."},
	},
	{
		name: "an agent does not carry the SDK of MCP",
		of:   []string{"cmd/nexus-child", "cmd/nexus-rpc"}, deny: []string{"github.com/modelcontextprotocol/..."}, deps: true,
	},
	{
		name: "NATS is for what makes machines one",
		of:   []string{"..."}, except: []string{"supervisor/cluster/..."}, deny: []string{"github.com/nats-io/..."},
	},
	{
		name: "no server and no agent carries the server of NATS",
		of:   []string{"cmd/nexus", "cmd/nexus-child", "cmd/nexus-rpc", "supervisor/cluster", "supervisor/cluster/tunnel"}, deny: []string{"github.com/nats-io/nats-server/..."}, deps: true,
	},
	{
		name: "a child, and a client, carry nothing of NATS",
		of:   []string{"cmd/nexus-child", "cmd/nexus-rpc", "child/...", "bridge/..."}, deny: []string{"github.com/nats-io/..."}, deps: true,
	},
	{
		name: "SQLite is for the logs of sessions",
		of:   []string{"..."}, except: []string{"cmd/internal/sessionlog"}, deny: []string{"modernc.org/..."},
	},
	{
		name: "only nexus carries SQLite",
		of:   []string{"cmd/nexus-child", "cmd/nexus-rpc", "cmd/nexus-bench", "bridge/...", "supervisor/..."}, deny: []string{"modernc.org/..."}, deps: true,
	},
	{
		name: "processes are started in few places",
		of:   []string{"..."}, deny: []string{"os/exec"},
		except: []string{"supervisor/proc/...", "supervisor/store/storetest", "child/sandbox/...", "cmd/..."},
	},
	{
		name: "fixtures are for tests",
		of:   []string{"..."}, except: []string{"fixtures/..."}, deny: []string{"fixtures/..."},
	},
	{
		name: "fixtures know nobody",
		of:   []string{"fixtures/..."}, deny: []string{"..."}, deps: true,
	},
	{
		name: "the vendors' SDKs are for .ci/oracles",
		of:   []string{"..."}, deny: []string{"github.com/openai/...", "github.com/anthropics/..."}, tests: true,
	},
	{
		name: "the server's façade reads JSON by types",
		of:   []string{"bridge/..."}, except: []string{"bridge/client/..."}, deny: []string{"github.com/tidwall/gjson"},
	},
	{
		name: "JSON has one decoder and one encoder",
		of:   []string{"..."}, deny: []string{"encoding/json"}, tests: true,
	},
}

func TestImports(t *testing.T) {
	packages := list(t)
	if len(packages) < 10 {
		t.Fatalf("go list found %d packages, that cannot be all", len(packages))
	}
	for _, violation := range check(packages, arrows) {
		t.Error(violation)
	}
}

// TestCheckFindsPlanted shows that the check can fail: each of these packages
// breaks a rule, and only that one.
func TestCheckFindsPlanted(t *testing.T) {
	got := check([]pkg{
		{ImportPath: module + "protocol/frame", Imports: []string{"io", module + "supervisor"}, Deps: []string{module + "supervisor"}},
		{ImportPath: module + "protocol/safefile", Imports: []string{"os", module + "protocol/strict"}},
		{ImportPath: module + "supervisor", Imports: []string{"os/exec", module + "protocol"}, Deps: []string{module + "protocol"}},
		{ImportPath: module + "supervisor/stdio", Imports: []string{"net/http"}},
		{ImportPath: module + "supervisor/broker", Imports: []string{"net/http"}},
		{ImportPath: module + "supervisor/store", Deps: []string{module + "supervisor", module + "supervisor/broker"}},
		{ImportPath: module + "bridge", Imports: []string{module + "supervisor"}, Deps: []string{module + "supervisor", module + "supervisor/proc"}},
		{ImportPath: module + "bridge/httpd", Imports: []string{module + "bridge/rpc"}, Deps: []string{module + "bridge/agents"}},
		{ImportPath: module + "bridge/events", Imports: []string{module + "bridge/httpd"}},
		{ImportPath: module + "bridge/rpc", Imports: []string{module + "bridge/methods"}},
		{ImportPath: module + "child/turn", Imports: []string{module + "bridge/api"}, Deps: []string{module + "bridge/api"}},
		{ImportPath: module + "bridge/api", TestImports: []string{"encoding/json"}},
		{ImportPath: module + "child", TestImports: []string{module + "fixtures"}},
		{ImportPath: module + "bridge/task", Imports: []string{"github.com/prometheus/client_golang/prometheus"}},
		{ImportPath: module + "cmd/nexus-child", Deps: []string{"github.com/prometheus/common/model"}},
		{ImportPath: module + "child/provider/openai", Imports: []string{"github.com/openai/openai-go/v3"}},
		{ImportPath: module + "cmd/internal/config", Imports: []string{"go.opentelemetry.io/otel"}},
		{ImportPath: module + "cmd/nexus-rpc", Deps: []string{"go.opentelemetry.io/otel/trace"}},
		{ImportPath: module + "child/mcp", Imports: []string{"github.com/modelcontextprotocol/go-sdk/mcp"}},
		{ImportPath: module + "cmd/nexus-rpc", Deps: []string{"github.com/modelcontextprotocol/go-sdk/jsonrpc"}},
		{ImportPath: module + "bridge/sessions", Imports: []string{"modernc.org/sqlite"}},
		{ImportPath: module + "cmd/nexus-child", Deps: []string{"modernc.org/libc"}},
		{ImportPath: module + "cmd/nexus", Imports: []string{"os/exec", module + "fixtures"}},
	}, arrows)
	want := []string{
		"child/mcp imports github.com/modelcontextprotocol/go-sdk/mcp: the SDK of MCP is for nexus mcp and for tests",
		"cmd/nexus-rpc imports github.com/modelcontextprotocol/go-sdk/jsonrpc: an agent does not carry the SDK of MCP",
		"protocol/frame imports supervisor: protocol knows nobody",
		"protocol/safefile imports protocol/strict: safefile knows files alone",
		"supervisor imports os/exec: the supervisor's root is pure state and time",
		"supervisor imports os/exec: processes are started in few places",
		"supervisor/stdio imports net/http: the supervisor's HTTP is the broker's",
		"supervisor/store imports supervisor/broker: the store knows what it keeps and nobody who asks for it",
		"bridge imports supervisor/proc: the bridge reaches agents by the supervisor alone",
		"bridge/httpd imports bridge/agents: HTTP knows no methods and no agents' registry",
		"bridge/events imports bridge/httpd: event streams know no HTTP server and no agents' registry",
		"bridge/rpc imports bridge/methods: calls know no HTTP server and no agents' registry",
		"child/turn imports bridge/api: a child knows its pipes and nothing else",
		"child/provider/openai imports github.com/openai/openai-go/v3: the vendors' SDKs are for .ci/oracles",
		"bridge/sessions imports modernc.org/sqlite: SQLite is for the logs of sessions",
		"bridge/sessions imports modernc.org/sqlite: only nexus carries SQLite",
		"cmd/nexus-child imports modernc.org/libc: only nexus carries SQLite",
		"cmd/nexus imports fixtures: fixtures are for tests",
		"bridge/task imports github.com/prometheus/client_golang/prometheus: metrics have one package",
		"cmd/nexus-child imports github.com/prometheus/common/model: a child does not carry the server's metrics",
		"cmd/internal/config imports go.opentelemetry.io/otel: traces have one exporter",
		"cmd/nexus-rpc imports go.opentelemetry.io/otel/trace: only the server exports traces",
		"bridge/api imports encoding/json: JSON has one decoder and one encoder",
	}
	slices.Sort(got)
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("violations (-want +got):\n%s", diff)
	}
}

func check(packages []pkg, rules []rule) (violations []string) {
	for _, r := range rules {
		for _, p := range packages {
			name := short(p.ImportPath)
			if !matches(r.of, name) || matches(r.except, name) {
				continue
			}
			imports := slices.Clone(p.Imports)
			if r.deps {
				imports = append(imports, p.Deps...)
			}
			if r.tests {
				imports = append(imports, p.TestImports...)
				imports = append(imports, p.XTestImports...)
			}
			slices.Sort(imports)
			for _, imported := range slices.Compact(imports) {
				if denied(r, imported) {
					violations = append(violations, fmt.Sprintf("%s imports %s: %s", name, short(imported), r.name))
				}
			}
		}
	}
	return violations
}

func denied(r rule, imported string) bool {
	ours := strings.HasPrefix(imported, module)
	for _, pattern := range r.deny {
		if !matches([]string{pattern}, short(imported)) || (pattern == "..." && !ours) {
			continue
		}
		return !ours || !matches(r.allow, short(imported))
	}
	return false
}

func matches(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		if pattern == "..." {
			return true
		}
		root, below := strings.CutSuffix(pattern, "/...")
		return name == root || below && strings.HasPrefix(name, root+"/")
	})
}

func short(importPath string) string { return strings.TrimPrefix(importPath, module) }

func list(t *testing.T) (packages []pkg) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Imports,Deps,TestImports,XTestImports", module+"...")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, &stderr)
	}
	dec := jsontext.NewDecoder(bytes.NewReader(out))
	for {
		var p pkg
		switch err := json.UnmarshalDecode(dec, &p); {
		case errors.Is(err, io.EOF):
			return packages
		case err != nil:
			t.Fatalf("decode go list: %v", err)
		}
		packages = append(packages, p)
	}
}
