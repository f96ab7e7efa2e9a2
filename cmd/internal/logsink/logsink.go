// Package logsink is stderr for programs that must not wait for its reader.
//
//	sink := logsink.New(os.Stderr, lost) // lost makes the line that tells of n lost ones
//	defer sink.Flush()
//	log := zap.New(zapcore.NewCore(encoder, zapcore.AddSync(sink), zapcore.InfoLevel))
//
// Each Write is one line, which loses what looks like a key of the façade (SPEC §6.6). It is written at once where there is room, else soon
// and in order, by a goroutine that lives no longer than what waits. At most
// MaxLines and MaxBytes wait; lines beyond them are lost, and a line says how
// many. A Sink is safe for concurrent use. See SPEC §7.
package logsink

import (
	"io"
	"time"

	"nexus.internal/protocol/outlet"
	"nexus.internal/protocol/redact"
)

// Bounds of what waits because stderr is not read.
const (
	MaxLines = 1024
	MaxBytes = 1 << 20
)

// grace is how long the end waits for whoever reads stderr.
const grace = 100 * time.Millisecond

// Sink writes lines.
type Sink struct{ out *outlet.Writer }

// New returns a Sink that writes to stderr.
func New(stderr io.Writer, lost func(n int) []byte) Sink {
	return Sink{outlet.New(outlet.Options{
		Write: func(line []byte) error {
			_, err := stderr.Write(line)
			return err
		},
		Room: outlet.Room(stderr), MaxPieces: MaxLines, MaxBytes: MaxBytes, Lost: lost,
	})}
}

// Write implements [io.Writer]. It never fails.
func (s Sink) Write(line []byte) (int, error) {
	s.out.Post([]byte(redact.Keys(string(line))))
	return len(line), nil
}

// Flush waits until all is written, but not for long. Nothing is taken after.
func (s Sink) Flush() {
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-s.out.Close():
	case <-timer.C:
	}
}
