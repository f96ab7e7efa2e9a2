package main

import (
	"bufio"
	"io"
	"testing"
	"testing/synctest"

	"github.com/tidwall/gjson"
	"go.uber.org/zap"

	"nexus.internal/cmd/internal/logsink"
)

// A log that nobody reads holds nobody up, and whoever reads it later is told
// how much of it is missing.
func TestLogNeverWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, w := io.Pipe()
		sink := logsink.New(w, logsink.JSON)
		log := sink.Logger(logsink.Level{})
		const lines = 3000
		log.Info("line", zap.Int("n", 0))
		synctest.Wait() // it is stuck in the pipe: else it would leave the queue at any moment, and make room for one that comes after lost ones
		for i := 1; i < lines; i++ {
			log.Info("line", zap.Int("n", i))
		}
		sink.Flush() // gives up soon
		reader := bufio.NewReader(r)
		for seen := range logsink.MaxLines + 1 {
			line, err := reader.ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			if got := gjson.Get(line, "n"); !got.Exists() || got.Int() != int64(seen) {
				t.Fatalf("line %d is %s", seen, line)
			}
		}
		line, err := reader.ReadString('\n')
		if got, want := gjson.Get(line, "data.lost").Int(), int64(lines-logsink.MaxLines-1); err != nil || got != want {
			t.Errorf("the last line is %q, %v, want %d lost", line, err, want)
		}
	})
}
