// Package logsink is the log of programs that must not wait for its reader.
//
//	sink := logsink.New(os.Stderr, format)
//	defer sink.Flush()
//	log := sink.Logger(level)
//
// Each Write is one line, which loses what looks like a key of the façade (SPEC §6.6). It is written at once where there is room, else soon
// and in order, by a goroutine that lives no longer than what waits. At most
// MaxLines and MaxBytes wait; lines beyond them are lost, and a line says how
// many. A Sink is safe for concurrent use. See SPEC §7.
package logsink

import (
	"io"
	"slices"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"nexus.internal/protocol/redact"
	"nexus.internal/protocol/writequeue"
)

// Bounds of what waits because stderr is not read.
const (
	MaxLines = 1024
	MaxBytes = 1 << 20
)

// grace is how long the end waits for whoever reads stderr.
const grace = 100 * time.Millisecond

// Sink writes lines.
type Sink struct {
	out     *writequeue.Writer
	encoder zapcore.Encoder
}

// New returns a Sink that writes to stderr, in that format where it writes lines of a
// Logger and of what was lost.
func New(stderr io.Writer, format Format) Sink {
	encoder := format.encoder(stderr)
	return Sink{encoder: encoder, out: writequeue.New(
		lines{writequeue.Poll(stderr), stderr, encoder}, writequeue.Bounds{Pieces: MaxLines, Bytes: MaxBytes},
	)}
}

// lines is the stream of a Sink.
type lines struct {
	writequeue.Poller
	stderr  io.Writer
	encoder zapcore.Encoder
}

// Write implements [writequeue.Stream].
func (l lines) Write(all ...[]byte) error {
	for _, line := range all {
		if _, err := l.stderr.Write(line); err != nil {
			return err
		}
	}
	return nil
}

// Lost implements [writequeue.Stream].
func (l lines) Lost(n int) []byte { return lost(l.encoder, n) }

// Failed implements [writequeue.Stream]: there is nowhere to tell it.
func (lines) Failed(error) {}

// Logger returns a logger that writes lines of that level and above.
func (s Sink) Logger(level Level) *zap.Logger {
	return zap.New(keeping{Core: zapcore.NewCore(s.encoder, zapcore.AddSync(s), level.Level)})
}

// keeping is a core that keeps the fields of With as they are: zap's own encodes them at once
// into a buffer of 1 KiB, and an agent has five loggers, which write a line or none.
type keeping struct {
	zapcore.Core
	fields []zap.Field
}

// With implements [zapcore.Core].
func (k keeping) With(fields []zap.Field) zapcore.Core {
	k.fields = slices.Concat(k.fields, fields)
	return k
}

// Check implements [zapcore.Core].
func (k keeping) Check(e zapcore.Entry, to *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if k.Enabled(e.Level) {
		return to.AddCore(e, k)
	}
	return to
}

// Write implements [zapcore.Core].
func (k keeping) Write(e zapcore.Entry, fields []zap.Field) error {
	if len(k.fields) > 0 {
		fields = slices.Concat(k.fields, fields)
	}
	return k.Core.Write(e, fields)
}

// Write implements [io.Writer]. It never fails.
func (s Sink) Write(line []byte) (int, error) {
	s.out.Post(redact.KeysOf(line))
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
