package eventlog_test

import (
	"bytes"
	"testing"

	"nexus.internal/supervisor/store/internal/eventlog"
)

// What a segment is read as is what it says: written again it is the same, and
// what follows is not a whole line more.
func FuzzSegment(f *testing.F) {
	f.Add([]byte{}, uint64(1))
	f.Add(eventlog.Segment(1, `{"type":"a"}`, `{"type":"b","n":{}}`), uint64(1))
	f.Add(append(eventlog.Segment(7, `{"type":"a"}`), `{"seq":8,"event":{"ty`...), uint64(7))
	f.Add(append(eventlog.Segment(7, `{"type":"a"}`), "{\"seq\":3,\"event\":{}}\n"...), uint64(7))
	f.Add(append(eventlog.Segment(7, `{"type":"a"}`), make([]byte, 100)...), uint64(7))
	f.Add(append(eventlog.Segment(7, `{"type":"a"}`), "{\"seq\":9,\"event\":{\"a\":}}\n"...), uint64(7))
	f.Fuzz(func(t *testing.T, data []byte, first uint64) {
		again, good, ok := eventlog.Check(data, first)
		if !ok {
			if bytes.Equal(data, eventlog.Segment(first)) {
				t.Error("an empty segment is refused")
			}
			return
		}
		if good > len(data) || good > 0 && data[good-1] != '\n' {
			t.Fatalf("%d of %d bytes are good", good, len(data))
		}
		if !bytes.Equal(again, data[:good]) {
			t.Errorf("read %q, written again %q", data[:good], again)
		}
	})
}
