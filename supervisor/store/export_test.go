package store

import (
	"reflect"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"nexus.internal/supervisor"
	"nexus.internal/supervisor/store/internal/segmentlog"
)

// NewSmall is NewLocal with segments that are begun every few dozen turns.
func NewSmall(o Options) *Local {
	l := NewLocal(o)
	l.writer = segmentlog.New(segmentlog.Options{Segments: 3, SegmentSize: 64 << 10})
	return l
}

// Again reads lines, and the snapshot of what they say.
func Again(lines [][]byte) (again []byte, ended, waiting int) {
	q := requestsIn(lines)
	done, open := q.sorted()
	again, _ = q.snapshot()
	return again, len(done), len(open)
}

// Earlier reads a file of requests of the earlier layout as Again does.
func Earlier(data []byte) (again []byte, good int, err error) {
	q, good, err := parseEarlier(data)
	again, _ = q.snapshot()
	return again, good, err
}

// LinesOf are the lines of a request and of its outcome, and what the general encoder makes of
// these; empty is how many members of the outcome have nothing in them.
func LinesOf(id string, r supervisor.Result) (lines, general []byte, empty int) {
	begun, end := accepted{Number: 1, RequestID: id, SHA256: "00"}, endedOf(1<<63, 1, r)
	for _, v := range []any{begun, end} {
		line, _ := json.Marshal(v, jsontext.AllowInvalidUTF8(true))
		general = append(append(general, line...), '\n')
	}
	for _, member := range reflect.ValueOf(end).Fields() {
		if member.IsZero() {
			empty++
		}
	}
	return appendLine(appendLine(nil, begun), end), general, empty
}
