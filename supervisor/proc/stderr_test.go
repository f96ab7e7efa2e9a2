package proc_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"nexus.internal/supervisor/proc"
)

// lines collects what is logged.
type lines struct{ strings.Builder }

func (*lines) Sync() error { return nil }

// A child's log keeps its levels and members in the server's, so that one filter and
// one format hold for both; what is no line of a log is text.
func TestChildLogKeepsItsLevel(t *testing.T) {
	for _, tt := range []struct{ name, line, want string }{
		{"a warning", `{"level":"warn","message":"slow","logger":"child","n":1}`, `{"level":"warn","msg":"child stderr","child":{"level":"warn","message":"slow","logger":"child","n":1}}`},
		{"below the level of the server", `{"level":"debug","message":"x"}`, ``},
		{"text", `panic: x`, `{"level":"info","msg":"child stderr","line":"panic: x"}`},
		{"JSON that is no line of a log", `{"level":"fatal","message":"x"}`, `{"level":"info","msg":"child stderr","line":"{\"level\":\"fatal\",\"message\":\"x\"}"}`},
		{"JSON that is cut off", `{"level":"warn","message":"x`, `{"level":"info","msg":"child stderr","line":"{\"level\":\"warn\",\"message\":\"x"}`},
		{"a key", `{"level":"error","message":"nxk_aaaaaaaaaaaaaaaaaaaa"}`, `{"level":"error","msg":"child stderr","child":{"level":"error","message":"[redacted]"}}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got lines
			config := zap.NewProductionEncoderConfig()
			config.TimeKey = ""
			proc.LogStderr(zap.New(zapcore.NewCore(zapcore.NewJSONEncoder(config), &got, zap.InfoLevel)), tt.line+"\n")
			if diff := cmp.Diff(tt.want, strings.TrimSpace(strings.Replace(got.String(), `,"pid":0`, "", 1))); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}
