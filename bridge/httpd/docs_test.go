package httpd_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"go.uber.org/zap"

	"nexus.internal/bridge/httpd"
	"nexus.internal/bridge/metrics"
	"nexus.internal/bridge/rpc"
)

// A client without a key does not make the server describe all its methods again for each
// request, which took 3 ms of a processor.
func TestDocsAreMadeOnce(t *testing.T) {
	const addr = "127.0.0.1:8765"
	s, err := httpd.New(httpd.Options{Addr: addr, Log: zap.NewNop(), Lines: rpc.NewLineLimit(zap.NewNop()), Metrics: metrics.New(metrics.Options{})})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Stop(nil)
	allocated := testing.AllocsPerRun(3, func() { // and once before
		w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/docs", nil)
		r.Host = addr
		s.ServeHTTP(w, r)
		if w.Code != http.StatusOK {
			t.Fatalf("HTTP %d %s", w.Code, w.Body)
		}
	})
	if allocated > 500 {
		t.Errorf("%v allocations a request", allocated)
	}
}
