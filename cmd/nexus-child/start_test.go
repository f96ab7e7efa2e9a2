package main

import (
	"fmt"
	"strings"
	"testing"
)

// Every agent pays for what packages prepare before main: patterns and tables
// are made when they are needed first.
func TestPackagesPrepareLittle(t *testing.T) {
	const most = 8 << 10 // bytes allocated by one package of ours
	p := command(t, t.TempDir(), []string{"GODEBUG=inittrace=1"}, "--version")
	if err := p.cmd.Run(); err != nil {
		t.Fatal(err)
	}
	seen := 0
	for line := range strings.Lines(p.stderr.String()) {
		var name string
		var bytes int
		if _, trace, ok := strings.Cut(line, " clock, "); ok {
			_, _ = fmt.Sscanf(line, "init %s", &name)
			_, _ = fmt.Sscanf(trace, "%d bytes", &bytes)
		}
		if strings.HasPrefix(name, "nexus.internal/") {
			if seen++; bytes > most {
				t.Errorf("%s allocates %d bytes, want at most %d", name, bytes, most)
			}
		}
	}
	if seen < 5 {
		t.Errorf("%d packages of ours, that cannot be all:\n%s", seen, p.stderr.String())
	}
}
