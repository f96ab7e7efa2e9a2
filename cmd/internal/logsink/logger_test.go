package logsink_test

import (
	"os"
	"path/filepath"
	"regexp"
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
		{"info", "text", `^[0-9:.]{12} INFO test one {"n": 1}\n[0-9:.]{12} ERROR test two\n$`},
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
			log.Error("two")
			sink.Flush()
			got, err := os.ReadFile(path)
			if err != nil || !regexp.MustCompile(tt.want).Match(got) {
				t.Errorf("got %s, %v, want %s", got, err, tt.want)
			}
		})
	}
}

func TestFlagsRefuse(t *testing.T) {
	if err := new(logsink.Level).Set("warning"); err == nil || err.Error() != `want debug, info, warn or error, not "warning"` {
		t.Error(err)
	}
	if err := new(logsink.Format).Set("xml"); err == nil || err.Error() != `want auto, text or json, not "xml"` {
		t.Error(err)
	}
}
