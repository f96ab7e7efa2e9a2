package rpc_test

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

	"nexus.internal/bridge/auth"
	"nexus.internal/bridge/rpc"
)

// Requests without a key, and those of one that is good for less, cannot fill the log: after
// some lines they are counted. A full key's all have theirs.
func TestLineLimit(t *testing.T) {
	for _, c := range []struct {
		name       string
		by         auth.Grant
		each, want int
		counted    string // message, requests, by "rpc 401", principal
	}{
		{"nobody", auth.Grant{}, 1, 20, "[requests without a good key had no line each 980 490 ]"},
		{"a key for less", auth.Grant{ID: "k", Scope: auth.ScopeRead}, 1, 600, "[requests had no line each 400 200 key k]"},
		{"batches of a key for less", auth.Grant{ID: "k", Scope: auth.ScopeAgent}, 51, 11, "[requests had no line each 989 495 key k]"},
		{"a full key", auth.Grant{ID: "k", Scope: auth.ScopeFull}, 1, 1000, "[   ]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var logs bytes.Buffer
				l := rpc.NewLineLimit(zap.New(zapcore.NewCore(zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig()), zapcore.AddSync(&logs), zap.DebugLevel)))
				flood := func() (admitted int) {
					for i := range 1000 {
						if l.Request(c.by, c.each, []string{"rpc 403", "rpc 401"}[i%2]) {
							admitted++
						}
					}
					return admitted
				}
				if got := flood(); got != c.want {
					t.Errorf("%d requests have lines in the first minute, want %d", got, c.want)
				}
				if other := (auth.Grant{ID: "other", Scope: auth.ScopeRead}); !l.Request(other, 1, "rpc 200") {
					t.Error("another key has no line")
				}
				<-time.After(time.Minute)
				synctest.Wait()
				if got := gjson.GetMany(logs.String(), "msg", "data.requests", "data.by_route_and_status.rpc 401", "data.principal"); fmt.Sprint(got) != c.counted {
					t.Errorf("got %s of %s, want %s", got, &logs, c.counted)
				}
				if got := flood(); got != c.want {
					t.Errorf("%d requests have lines in the second minute, want %d", got, c.want)
				}
				before := strings.Count(logs.String(), "no line each")
				l.Close()
				if got := strings.Count(logs.String(), "no line each"); got != 2*before {
					t.Errorf("%d lines that count, want one more at the end", got)
				}
			})
		})
	}
}
