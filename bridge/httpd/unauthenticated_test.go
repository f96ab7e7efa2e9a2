package httpd_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidwall/gjson"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"nexus.internal/bridge/httpd"
)

// Requests without a key cannot fill the log: after some lines they are counted.
func TestUnauthenticatedDoNotFillTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var logs bytes.Buffer
		l := httpd.NewUnauthenticatedLog(zap.New(zapcore.NewCore(zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig()), zapcore.AddSync(&logs), zap.DebugLevel)))
		flood := func(n int) (admitted int) {
			for i := range n {
				if l.Admit("rpc", []string{"401", "403"}[i%2]) {
					admitted++
				}
			}
			return admitted
		}
		if got := flood(1000); got != 20 {
			t.Errorf("%d lines in the first minute, want 20", got)
		}
		<-time.After(time.Minute)
		synctest.Wait()
		if got := gjson.GetMany(logs.String(), "msg", "data.requests", "data.by_route_and_status.rpc 401"); fmt.Sprint(got) != "[requests without a good key had no line each 980 490]" {
			t.Errorf("got %s of %s", got, &logs)
		}
		if got := flood(21); got != 20 {
			t.Errorf("%d lines in the second minute, want 20", got)
		}
		l.Close()
		if got := strings.Count(logs.String(), "no line each"); got != 2 {
			t.Errorf("%d lines that count, want one more at the end", got)
		}
	})
}
