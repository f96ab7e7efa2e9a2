package main

import (
	"bytes"
	"io"
	"time"

	"github.com/go-json-experiment/json"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"nexus.internal/child/outlet"
)

const (
	// maxLogLines and maxLogBytes bound what waits because stderr is not read.
	// Lines beyond them are lost, and a line says how many.
	maxLogLines = 1024
	maxLogBytes = 1 << 20
	// logGrace is how long the end waits for whoever reads stderr.
	logGrace = 100 * time.Millisecond
)

// logSink is stderr for those who must not wait for its reader: each Write is
// one piece, written at once where there is room, else soon. It never fails.
type logSink struct{ out *outlet.Writer }

func newLogSink(stderr io.Writer) logSink {
	return logSink{outlet.New(outlet.Options{
		Write: func(line []byte) error {
			_, err := stderr.Write(line)
			return err
		},
		Room: outlet.Room(stderr), MaxPieces: maxLogLines, MaxBytes: maxLogBytes, Lost: lostLines,
	})}
}

// Write implements [io.Writer].
func (s logSink) Write(line []byte) (int, error) {
	s.out.Post(bytes.Clone(line))
	return len(line), nil
}

// flush waits until all is written, but not for long. Nothing is taken after.
func (s logSink) flush() {
	timer := time.NewTimer(logGrace)
	defer timer.Stop()
	select {
	case <-s.out.Close():
	case <-timer.C:
	}
}

// lostLines is the line that stands for n others.
func lostLines(n int) []byte {
	line, err := json.Marshal(struct {
		Level     string    `json:"level"`
		Timestamp time.Time `json:"timestamp"`
		Logger    string    `json:"logger"`
		Message   string    `json:"message"`
		Lost      int       `json:"lost"`
	}{"warn", time.Now(), "child", "stderr was not read: log lines were lost", n})
	if err != nil {
		return nil // no such value exists
	}
	return append(line, '\n')
}

// newLog writes JSON lines, info and above.
func newLog(w io.Writer) *zap.Logger {
	encoder := zapcore.NewJSONEncoder(zapcore.EncoderConfig{
		TimeKey: "timestamp", LevelKey: "level", NameKey: "logger", MessageKey: "message", StacktraceKey: "stack",
		EncodeTime: zapcore.RFC3339NanoTimeEncoder, EncodeLevel: zapcore.LowercaseLevelEncoder,
		EncodeDuration: zapcore.StringDurationEncoder,
	})
	return zap.New(zapcore.NewCore(encoder, zapcore.AddSync(w), zapcore.InfoLevel)).Named("child")
}
