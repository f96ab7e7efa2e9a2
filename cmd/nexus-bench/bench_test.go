package main

import (
	"os"
	"strings"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == roleArg {
		os.Exit(play(os.Args[2], os.Args[3:]))
	}
	os.Exit(m.Run())
}

// Every floor is a figure of real processes: none may come out as nothing.
func TestFloors(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	f, err := measureFloors(t.Context(), self, t.TempDir(), options{sends: 32, lines: 500, spawns: 2})
	if err != nil {
		t.Fatal(err)
	}
	for name, got := range map[string]float64{
		"pipe": f.pipe.Seconds(), "http": f.http.Seconds(), "http rate": f.httpRate, "spawn": f.spawn.Seconds(),
		"lines": f.lines, "bulk": f.bulk, "sync": f.sync.Seconds(),
	} {
		if got <= 0 {
			t.Errorf("floor %s is %v", name, got)
		}
	}
}

func TestMedian(t *testing.T) {
	if got := median([]time.Duration{9, 1, 5}); got != 5 {
		t.Errorf("median of 9, 1, 5 is %d", got)
	}
	if got := median(nil); got != 0 {
		t.Errorf("median of nothing is %d", got)
	}
}

// A figure on the wrong side of its bound is marked, on the right side it is not.
func TestRenderMarksBounds(t *testing.T) {
	tests := []struct {
		name    string
		nexus   float64
		atLeast bool
		want    string
	}{
		{"within an upper bound", 2, false, ""},
		{"over it", 3.1, false, "over"},
		{"within a lower bound", 3, true, ""},
		{"under it", 1, true, "under"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var out strings.Builder
			if err := render(&out, []row{{"figure", "floor", 1, tt.nexus, perSec, 2.5, tt.atLeast}}); err != nil {
				t.Fatal(err)
			}
			line := strings.TrimSpace(strings.Split(out.String(), "\n")[1])
			if got := strings.HasSuffix(line, "over") || strings.HasSuffix(line, "under"); got != (tt.want != "") || !strings.HasSuffix(line, tt.want) {
				t.Errorf("line %q, want it to end in %q", line, tt.want)
			}
		})
	}
}
