package eventlog_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if play := os.Getenv("EVENTLOG_PLAY"); play != "" {
		os.Exit(perform(play))
	}
	goleak.VerifyTestMain(m)
}
