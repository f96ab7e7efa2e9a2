package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"go.uber.org/zap"

	"nexus.internal/bridge/auth"
	"nexus.internal/supervisor"
)

// beforeReady is how often a server that does not answer yet is asked.
const beforeReady = time.Second

// herald tells systemd how the server is (sd_notify(3), SPEC §6.8). Where nothing
// listens, it tells nobody and asks nothing.
type herald struct {
	address string        // host and port of the server
	probe   auth.Key      // see bridge.Options.Probe
	drain   time.Duration // how long turns may go on at the end
	log     *zap.Logger
}

// run tells that the server is ready once it answers, that it lives as long as
// it answers, and that it ends once asked does. It returns when ended does.
func (h herald) run(asked, ended context.Context) error {
	watchdog, err := daemon.SdWatchdogEnabled(false)
	if err != nil { // it is as good as not set
		h.log.Warn("what the watchdog wants cannot be read", zap.Error(err))
	}
	if !h.tell("STATUS=starting") {
		<-ended.Done()
		return nil
	}
	every := beforeReady
	if watchdog > 0 {
		every = watchdog / 2
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	ready := false
	ending := asked.Done()
	for {
		switch err := h.ask(ended, every); {
		case ended.Err() != nil:
			return nil
		case err != nil && ending == nil: // the listener is closed, or soon will be
		case err != nil:
			h.log.Warn("the server does not answer itself", zap.Error(err))
		case !ready:
			ready = true
			h.tell(daemon.SdNotifyReady + "\nSTATUS=listening on " + h.address + "\n" + daemon.SdNotifyWatchdog)
			if watchdog == 0 {
				tick.Stop() // there is nothing more to tell
			}
		default:
			h.tell(daemon.SdNotifyWatchdog)
		}
		select {
		case <-tick.C:
		case <-ending:
			ending = nil
			// The agents end after the turns.
			most := h.drain + supervisor.DefaultStopTimeout + beforeReady
			h.tell(fmt.Sprintf("%s\nSTATUS=draining\nEXTEND_TIMEOUT_USEC=%d", daemon.SdNotifyStopping, most.Microseconds()))
		case <-ended.Done():
			return nil
		}
	}
}

// tell reports whether there is somebody to tell.
func (h herald) tell(state string) bool { return tell(h.log, state) }

// tell tells systemd, if it listens, and reports whether it does.
func tell(log *zap.Logger, state string) bool {
	told, err := daemon.SdNotify(false, state)
	if err != nil {
		log.Warn("tell systemd", zap.Error(err))
	}
	return told || err != nil
}

// ask asks the server over a new connection, as a client would, whether it is
// ready. Any answer is one: it took a connection, a handler and the lock of each
// agent.
func (h herald) ask(ctx context.Context, patience time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+h.address+"/readyz", nil)
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+h.probe.Reveal())
	transport := &http.Transport{DisableKeepAlives: true}
	defer transport.CloseIdleConnections()
	response, err := transport.RoundTrip(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	_, err = io.Copy(io.Discard, response.Body)
	return err
}
