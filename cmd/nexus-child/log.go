package main

import (
	"io"
	"time"

	"github.com/go-json-experiment/json"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

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
