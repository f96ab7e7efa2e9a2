package segmentlog_test

import (
	"bytes"
	"testing"

	"nexus.internal/supervisor/store/internal/segmentlog"
)

// What a segment is read as is what it says: written again it is the same, and says the same.
func FuzzSegment(f *testing.F) {
	f.Add([]byte{})
	whole := segmentlog.Whole(1, `{"type":"a"}`, `{"type":"b","n":{}}`)
	room := append(bytes.Repeat([]byte(" "), segmentlog.RoomSize-1), '\n')
	for _, tail := range []string{
		"", `{"seq":8,"event":{"ty`, "{\"seq\":1,\"event\":{}}\n", "\x00\x00", "{\"seq\":9,\"event\":{\"a\":}}\n", "{\"accepted\":1}\n" + string(room) + "{\"seq\":3,\"event\":{}}\n",
		"{\"account\":{}}\n", "x\n{\"ended\":1}\n", " {\n", "{\"a\":1,\"a\":2}\n{}\n",
	} {
		f.Add(append(bytes.Clone(whole), tail...))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		again, lines, size, ok := segmentlog.Check(data)
		if !ok {
			return
		}
		if size > int64(len(data)) || data[size-1] != '\n' {
			t.Fatalf("%d of %d bytes are sound", size, len(data))
		}
		header := bytes.IndexByte(again, '\n') + 1
		if !bytes.Equal(again[header:], data[header:size]) {
			t.Errorf("read %q, written again %q", data[:size], again)
		}
		// An event at the end that is no JSON is cut off, but not if a torn line follows it.
		if _, lines2, size2, ok := segmentlog.Check(again); !ok || size2 > size || len(lines2) != len(lines) {
			t.Errorf("%q is read as %d bytes with %d lines, then as %d with %d", data, size, len(lines), size2, len(lines2))
		}
	})
}
