package main

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

// A start waits for the sweep for a short time alone, unless the disk is full: what agents
// left is as much as they like.
func TestStartSweep(t *testing.T) {
	for name, test := range map[string]struct {
		takes, want, whole time.Duration // of the sweep, the start, the start and the end
		room               error
	}{
		"short":               {takes: time.Second, want: time.Second, whole: time.Second},
		"long":                {takes: time.Hour, want: sweepPatience, whole: 2 * sweepPatience},
		"long on a full disk": {takes: time.Hour, want: time.Hour, whole: time.Hour, room: errors.New("full")},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				core, logged := observer.New(zap.WarnLevel)
				began := time.Now()
				wait := startSweep(func() error {
					<-time.After(test.takes)
					return errors.New("remove run/scratch/1")
				}, func() error { return test.room }, zap.New(core))
				if took := time.Since(began); took != test.want {
					t.Errorf("the start waited %v, want %v", took, test.want)
				}
				wait()
				if took := time.Since(began); took != test.whole || logged.Len() != 1 {
					t.Errorf("waited %v, want %v; %d warnings", took, test.whole, logged.Len())
				}
				<-time.After(test.takes) // the process would have ended
			})
		})
	}
}
