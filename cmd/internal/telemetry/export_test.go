package telemetry

import (
	"testing"
	"time"
)

// SetCloseTimeout lets a test wait less for a collector that hangs.
func SetCloseTimeout(t *testing.T, d time.Duration) {
	was := closeTimeout
	closeTimeout = d
	t.Cleanup(func() { closeTimeout = was })
}
