package main

import (
	"os/exec"
	"slices"
	"testing"
)

// Every figure of supervision is one of real programs, and is measured at all;
// what must be none is none.
func TestSupervision(t *testing.T) {
	b, ctx := newBench(t), t.Context()
	b.size = sizes{deaths: 2, ends: 1, kills: 6, loops: 3, beside: 5, besideRounds: 1}
	build := exec.CommandContext(ctx, "go", "build", "-ldflags=-s -w", "-o", b.bin, "../nexus", "../nexus-child")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build nexus: %v\n%s", err, out)
	}
	for _, part := range b.groups() {
		if !slices.Contains([]string{"deaths", "servers killed", "fairness: 3 crash loops", "fairness: a flood", "fairness: a fork storm"}, part.name) {
			continue
		}
		t.Run(part.name, func(t *testing.T) {
			rows, err := b.run(ctx, part)
			if err != nil || len(rows) == 0 {
				t.Fatalf("%d figures, %v", len(rows), err)
			}
			for _, r := range rows {
				if r.measured < 0 || r.floor <= 0 {
					t.Errorf("figure %q is %v, its floor %v", r.figure, r.measured, r.floor)
				}
			}
		})
	}
	t.Run("kills", func(t *testing.T) {
		got, err := b.runWithKills(ctx, 2, b.size.kills)
		if err != nil {
			t.Fatal(err)
		}
		if got.lost != 0 || got.acknowledged < b.size.kills || got.processes != 0 || got.descriptors > 0 || got.goroutines == 0 {
			t.Errorf("the toll of %d kills is %+v", b.size.kills, got)
		}
	})
}
