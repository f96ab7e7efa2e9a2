package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"runtime"
	"runtime/pprof"
	"runtime/trace"
	"strconv"
	"time"

	"go.uber.org/zap"

	"nexus.internal/cmd/internal/config"
	"nexus.internal/protocol/safefile"
)

const (
	// maxProfiled is how long a profile of the processor, or a trace, may take, in seconds.
	maxProfiled = 60
	// waitsCounted is of how many waits for a mutex one is counted.
	waitsCounted = 10
	// profilesGrace is how long the end of the server waits for answers that are being written.
	profilesGrace = time.Second
)

// serveProfiles answers requests for profiles of this process at a unix socket in the home,
// which is its user's alone and which no agent's program reaches (SPEC §2.1). No HTTP server
// of ours serves the handlers that net/http/pprof would register, so it is not linked.
func serveProfiles(home config.Home, log *zap.Logger) (*profiles, error) {
	path := home.Path("run", "pprof")
	// One that is there is of a killed server: the caller holds the home.
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("--pprof: %w", err)
	}
	listener, err := safefile.ListenSocket(path)
	if err != nil {
		return nil, fmt.Errorf("--pprof: %w", err)
	}
	runtime.SetMutexProfileFraction(waitsCounted) // else these two profiles are empty
	runtime.SetBlockProfileRate(int(time.Millisecond))
	mux := http.NewServeMux()
	mux.HandleFunc("GET /debug/pprof/{name}", profile)
	ctx, cancel := context.WithCancel(context.Background())
	p := &profiles{path: path, requests: cancel, served: make(chan struct{})}
	p.server = &http.Server{
		Handler: mux, ReadHeaderTimeout: 10 * time.Second, ErrorLog: zap.NewStdLog(log.Named("pprof")),
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	go func() {
		defer close(p.served)
		_ = p.server.Serve(listener) // ends by Shutdown alone
	}()
	return p, nil
}

// profiles is what answers requests for profiles.
type profiles struct {
	path     string
	requests context.CancelFunc // of all
	server   *http.Server
	served   chan struct{} // closed once nothing is accepted any more
}

// close removes the socket and returns once nothing is being answered, or after profilesGrace.
func (p *profiles) close() {
	p.requests()
	ctx, cancel := context.WithTimeout(context.Background(), profilesGrace)
	defer cancel()
	if p.server.Shutdown(ctx) != nil {
		_ = p.server.Close()
	}
	<-p.served
	_ = os.Remove(p.path)
}

// profile answers one request: by the name of a profile of runtime/pprof, profile (of the
// processor) or trace.
func profile(w http.ResponseWriter, r *http.Request) {
	number := func(name string, otherwise, most int) int {
		n, err := strconv.Atoi(r.FormValue(name))
		if err != nil || n < 0 {
			n = otherwise
		}
		return min(n, most)
	}
	during := func(start func(io.Writer) error, stop func()) {
		if err := start(w); err != nil { // one is being made
			http.Error(w, err.Error(), http.StatusConflict)
			return
		}
		defer stop()
		timer := time.NewTimer(time.Duration(number("seconds", 10, maxProfiled)) * time.Second)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-r.Context().Done():
		}
	}
	switch name := r.PathValue("name"); name {
	case "profile":
		during(pprof.StartCPUProfile, pprof.StopCPUProfile)
	case "trace":
		during(trace.Start, trace.Stop)
	default:
		found := pprof.Lookup(name)
		if found == nil {
			http.Error(w, "no such profile: see go doc runtime/pprof.Profile; there are profile and trace, too", http.StatusNotFound)
			return
		}
		if number("gc", 0, 1) > 0 {
			runtime.GC()
		}
		_ = found.WriteTo(w, number("debug", 0, 2)) // the client left
	}
}
