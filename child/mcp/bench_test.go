package mcp_test

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"nexus.internal/child/mcp"
	"nexus.internal/child/tool"
)

// benched is the manager of one real program.
func benched(b *testing.B) *mcp.Manager {
	b.Helper()
	exe, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	m := mcp.New(mcp.Options{
		Servers: []mcp.Server{{Name: "s", Command: exe, Env: map[string]string{kindVariable: "good"}}}, Start: sandboxed(), Wait: time.Minute,
	})
	m.Prepare(b.Context())
	b.Cleanup(func() { m.Close(context.Background()) })
	return m
}

// BenchmarkCall is one call of a server that is connected.
func BenchmarkCall(b *testing.B) {
	m := benched(b)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := m.Tools()[2].Run(b.Context(), tool.Call{Input: jsontext.Value(`{"text":"x"}`)}); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkConnect starts a program, reaper included, learns what it has and
// ends it.
func BenchmarkConnect(b *testing.B) {
	m := benched(b)
	for b.Loop() {
		if err := m.Disconnect(b.Context(), "s"); err != nil {
			b.Fatal(err)
		}
		if err := m.Connect(b.Context(), "s", ""); err != nil {
			b.Fatal(err)
		}
	}
}
