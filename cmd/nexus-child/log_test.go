package main

import (
	"bufio"
	"io"
	"testing"

	"github.com/tidwall/gjson"
	"go.uber.org/zap"
)

// A log that nobody reads holds nobody up, and whoever reads it later is told
// how much of it is missing.
func TestLogNeverWaits(t *testing.T) {
	r, w := io.Pipe()
	sink := newLogSink(w)
	log := newLog(sink)
	const lines = 3000
	for i := range lines {
		log.Info("line", zap.Int("n", i))
	}
	sink.flush() // gives up soon
	seen, lost := 0, 0
	reader := bufio.NewReader(r)
	for lost == 0 {
		line, err := reader.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if n := gjson.Get(line, "lost"); n.Exists() {
			lost = int(n.Int())
			continue
		}
		if got := gjson.Get(line, "n").Int(); got != int64(seen) {
			t.Fatalf("line %d is %s", seen, line)
		}
		seen++
	}
	if seen < maxLogLines || seen+lost != lines {
		t.Errorf("%d lines are read and %d lost, of %d", seen, lost, lines)
	}
}
