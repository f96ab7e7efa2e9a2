package main

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

// A start waits a short time for the sweep, longer only while the disk is full, and so does
// the end: agents can leave as much as they like.
func TestStartSweep(t *testing.T) {
	for name, test := range map[string]struct {
		takes, want, whole time.Duration // of the sweep, the start, the start and the end
		warnings           int
		room               error
	}{
		"short":               {takes: time.Second, want: time.Second, whole: 2 * time.Second, warnings: 2},
		"long":                {takes: time.Hour, want: sweepPatience, whole: 2 * sweepPatience, warnings: 1},
		"long on a full disk": {takes: time.Hour, want: time.Hour, whole: time.Hour + sweepPatience, warnings: 2, room: errors.New("full")},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				core, logged := observer.New(zap.WarnLevel)
				began := time.Now()
				last := startSweep(func(ctx context.Context) error {
					select {
					case <-time.After(test.takes):
						return errors.New("remove run/scratch/1")
					case <-ctx.Done():
						return fmt.Errorf("remove run/scratch/1: %w", ctx.Err())
					}
				}, func() error { return test.room }, zap.New(core))
				if took := time.Since(began); took != test.want {
					t.Errorf("the start waited %v, want %v", took, test.want)
				}
				last()
				if took := time.Since(began); took != test.whole || logged.Len() != test.warnings {
					t.Errorf("waited %v, want %v; %d warnings, want %d", took, test.whole, logged.Len(), test.warnings)
				}
			})
		})
	}
}
