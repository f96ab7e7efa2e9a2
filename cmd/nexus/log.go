package main

import (
	"io"
	"time"

	"github.com/go-json-experiment/json"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// newLogger writes JSON lines with the members timestamp, level and message to
// w, which locks itself.
func newLogger(w io.Writer) *zap.Logger {
	encoding := zap.NewProductionEncoderConfig()
	encoding.TimeKey, encoding.MessageKey = "timestamp", "message"
	encoding.EncodeTime = zapcore.RFC3339NanoTimeEncoder
	encoding.EncodeDuration = zapcore.MillisDurationEncoder
	return zap.New(zapcore.NewCore(zapcore.NewJSONEncoder(encoding), zapcore.AddSync(w), zapcore.InfoLevel))
}

// lostLines is the line that stands for n others.
func lostLines(n int) []byte {
	line, err := json.Marshal(struct {
		Level     string         `json:"level"`
		Timestamp time.Time      `json:"timestamp"`
		Message   string         `json:"message"`
		Data      map[string]int `json:"data"`
	}{"warn", time.Now(), "stderr was not read: log lines were lost", map[string]int{"lost": n}})
	if err != nil {
		return nil // no such value exists
	}
	return append(line, '\n')
}
