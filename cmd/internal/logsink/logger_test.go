package logsink_test

import (
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"testing"

	"go.uber.org/zap"

	"nexus.internal/cmd/internal/logsink"
)

// The flags mean the same to both programs: which lines there are, and how they are
// written.
func TestLogger(t *testing.T) {
	for _, tt := range []struct{ level, format, want string }{
		{"info", "auto", `^{"level":"info","timestamp":"[^"]+","logger":"test","message":"one","n":1}\n{"level":"error",[^\n]*\n$`}, // a file is no terminal
		{"error", "json", `^{"level":"error",[^\n]*\n$`},
		{"info", "text", `^[0-9:.]{12} INFO test one {"n": 1}\n[0-9:.]{12} ERROR test two {"text": "\\u001b\\u009b2J\\x7f\\u202eä\\t"}\n$`}, // what a terminal would act on is escaped
		{"debug", "text", `^[0-9:.]{12} DEBUG test zero\n`},
	} {
		t.Run(tt.level+" "+tt.format, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "log")
			file, err := os.Create(path)
			if err != nil {
				t.Fatal(err)
			}
			defer file.Close()
			var level logsink.Level
			var format logsink.Format
			if err := level.Set(tt.level); err != nil {
				t.Fatal(err)
			}
			if err := format.Set(tt.format); err != nil {
				t.Fatal(err)
			}
			sink := logsink.New(file, format)
			log := sink.Logger(level).Named("test")
			log.Debug("zero")
			log.Info("one", zap.Int("n", 1))
			log.Error("two", zap.String("text", "\x1b\u009b2J\x7f\u202eä\t"))
			sink.Flush()
			got, err := os.ReadFile(path)
			if err != nil || !regexp.MustCompile(tt.want).Match(got) {
				t.Errorf("got %s, %v, want %s", got, err, tt.want)
			}
		})
	}
}

// A logger with fields of its own writes them before those of the line, and takes little memory.
func TestLoggerWith(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	sink := logsink.New(file, logsink.JSON)
	log := sink.Logger(logsink.Level{})
	agent := log.With(zap.String("agent", "a"))
	agent.With(zap.Int("pid", 1)).Info("one", zap.Int("n", 2))
	agent.Info("two")
	agent.Debug("none")
	sink.Flush()
	got, err := os.ReadFile(path)
	want := regexp.MustCompile(`^{[^\n]*"message":"one","agent":"a","pid":1,"n":2}\n{[^\n]*"message":"two","agent":"a"}\n$`)
	if err != nil || !want.Match(got) {
		t.Errorf("got %s, %v, want %s", got, err, want)
	}
	const loggers = 100
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range loggers {
		agent = log.With(zap.String("agent", "a"))
	}
	runtime.ReadMemStats(&after)
	if each := (after.TotalAlloc - before.TotalAlloc) / loggers; each > 700 { // zap's own takes 1,400
		t.Errorf("%d bytes for a logger with a field, want at most 700", each)
	}
	agent.Debug("none")
}

func TestFlagsRefuse(t *testing.T) {
	if err := new(logsink.Level).Set("warning"); err == nil || err.Error() != `want debug, info, warn or error, not "warning"` {
		t.Error(err)
	}
	if err := new(logsink.Format).Set("xml"); err == nil || err.Error() != `want auto, text or json, not "xml"` {
		t.Error(err)
	}
}
