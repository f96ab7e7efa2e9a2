package main

import (
	"fmt"
	"io"
	"net/http"
	"runtime"
	"runtime/pprof"
	"runtime/trace"
	"strconv"
	"time"

	"go.uber.org/zap"

	"nexus.internal/cmd/internal/config"
)

const (
	// maxProfiled is how long a profile of the processor, or a trace, may take, in seconds.
	maxProfiled = 60
	// waitsCounted is of how many waits for a mutex one is counted.
	waitsCounted = 10
)

// serveProfiles answers requests for profiles of this process at a unix socket in the home. No HTTP server
// of ours serves the handlers that net/http/pprof would register, so it is not linked.
func serveProfiles(home config.Home, log *zap.Logger) (*socket, error) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /debug/pprof/{name}", profile)
	s, err := serveSocket(home, "pprof", mux, log)
	if err != nil {
		return nil, fmt.Errorf("--pprof: %w", err)
	}
	runtime.SetMutexProfileFraction(waitsCounted) // else these two profiles are empty
	runtime.SetBlockProfileRate(int(time.Millisecond))
	return s, nil
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
