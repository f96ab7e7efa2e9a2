package foreign

import (
	"strings"

	"nexus.internal/protocol/textcut"
)

// maxComplaint is how much of a program's stderr is kept for an error, in bytes.
const maxComplaint = 2 << 10

// tail keeps the end of what is written to it. It has one writer, and is read once that is through.
type tail struct{ kept []byte }

// Write implements [io.Writer].
func (t *tail) Write(p []byte) (int, error) {
	t.kept = append(t.kept, p[max(0, len(p)-maxComplaint):]...)
	t.kept = t.kept[max(0, len(t.kept)-maxComplaint):]
	return len(p), nil
}

func (t *tail) text() string {
	return strings.TrimSpace(strings.ToValidUTF8(string(textcut.Tail(t.kept, maxComplaint)), "\uFFFD"))
}
