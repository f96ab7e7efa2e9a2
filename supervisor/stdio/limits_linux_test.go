package stdio_test

import (
	"context"
	"errors"
	"testing"

	"nexus.internal/protocol"
	"nexus.internal/supervisor"
	"nexus.internal/supervisor/proc"
	"nexus.internal/supervisor/stdio"
)

// Limits that a child exceeds by being there are a start that fails, by name.
func TestLimitsTooLowToStart(t *testing.T) {
	guard, err := proc.NewGuard(proc.GuardOptions{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer guard.Close()
	for want, limits := range map[string]supervisor.Limits{
		"process limit 1":    {Processes: 1},
		"memory limit 1 KiB": {MemoryBytes: 1 << 10},
	} {
		s := fake("none", "")
		s.Limits = limits
		_, err := (&stdio.Launcher{CommandLine: player{}, Guard: guard}).Launch(t.Context(), s, false)
		e, ok := errors.AsType[*supervisor.StartError](err)
		if !ok || e.Exit == nil || e.Exit.Limit != want {
			t.Errorf("Launch = %v, want it killed for its %s", err, want)
		}
	}
}

// An agent that exceeds a limit is ended, by name; the others go on with what they
// do.
func TestLimitOfOneAgent(t *testing.T) {
	guard, err := proc.NewGuard(proc.GuardOptions{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	s := supervisor.New(supervisor.Options{Launcher: &stdio.Launcher{CommandLine: player{}, Graces: rungs, Guard: guard}})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	defer func() {
		cancel()
		if err := errors.Join(<-ended, guard.Close()); err != nil {
			t.Error(err)
		}
	}()
	start := func(id, fault string, l supervisor.Limits) *supervisor.Agent {
		t.Helper()
		own := fake(fault, "")
		own.ID, own.Limits, own.Policy = id, l, supervisor.Policy{Limit: -1}
		a, err := s.Start(ctx, own)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	limits := supervisor.Limits{MemoryBytes: 128 << 20, Processes: 40, CPUSeconds: 1, OutputBytesPerSecond: 1 << 20}
	other := start("other", "slow-frames", limits)
	for fault, want := range map[string]string{
		"memory-hog": "memory limit 128 MiB", "memory-hog-grandchild": "memory limit 128 MiB", "cpu-hog": "CPU limit 1 s",
		"output-hog": "output limit 1 MiB/s", "process-hog": "process limit 40",
	} {
		t.Run(fault, func(t *testing.T) {
			hog := start(fault, fault, limits)
			turn, err := hog.Prompt(ctx, protocol.Prompt{Message: "hello"}, supervisor.PromptOptions{})
			if err != nil {
				t.Fatal(err)
			}
			meanwhile, err := other.Prompt(ctx, protocol.Prompt{Message: "hello"}, supervisor.PromptOptions{})
			if err != nil {
				t.Fatal(err)
			}
			_, err = turn.Wait(ctx)
			if e, ok := errors.AsType[*supervisor.CrashError](err); !ok || e.Exit == nil || e.Exit.Limit != want {
				t.Errorf("the hog's turn: %v, want %s", err, want)
			}
			if r, err := meanwhile.Wait(ctx); err != nil || r.Text != "hello" || r.Incarnation != 1 {
				t.Errorf("the other's turn: %+v, %v", r, err)
			}
		})
	}
}
