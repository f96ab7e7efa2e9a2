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

// readyPollInterval is how often a server that does not answer yet is asked.
const readyPollInterval = time.Second

// sdNotifier tells systemd how the server is (sd_notify(3), SPEC §6.8). Where nothing
// listens, it tells nobody and asks nothing.
type sdNotifier struct {
	address string        // host and port of the server
	probe   auth.Key      // see bridge.Options.Probe
	drain   time.Duration // how long turns may go on at the end
	log     *zap.Logger
}

// run tells that the server is ready once it answers, that it lives as long as
// it answers, and that it ends once asked does. It returns when ended does.
func (n sdNotifier) run(asked, ended context.Context) error {
	watchdog, err := daemon.SdWatchdogEnabled(false)
	if err != nil { // it is as good as not set
		n.log.Warn("what the watchdog wants cannot be read", zap.Error(err))
	}
	if !n.notify("STATUS=starting") {
		<-ended.Done()
		return nil
	}
	every := readyPollInterval
	if watchdog > 0 {
		every = watchdog / 2
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	ready := false
	ending := asked.Done()
	for {
		switch err := n.probeServer(ended, every); {
		case ended.Err() != nil:
			return nil
		case err != nil && ending == nil: // the listener is closed, or soon will be
		case err != nil:
			n.log.Warn("the server does not answer itself", zap.Error(err))
		case !ready:
			ready = true
			n.notify(daemon.SdNotifyReady + "\nSTATUS=listening on " + n.address + "\n" + daemon.SdNotifyWatchdog)
			if watchdog == 0 {
				tick.Stop() // there is nothing more to tell
			}
		default:
			n.notify(daemon.SdNotifyWatchdog)
		}
		select {
		case <-tick.C:
		case <-ending:
			ending = nil
			// The agents end after the turns.
			most := n.drain + supervisor.DefaultStopTimeout + readyPollInterval
			n.notify(fmt.Sprintf("%s\nSTATUS=draining\nEXTEND_TIMEOUT_USEC=%d", daemon.SdNotifyStopping, most.Microseconds()))
		case <-ended.Done():
			return nil
		}
	}
}

// notify reports whether there is somebody to tell.
func (n sdNotifier) notify(state string) bool { return sdNotify(n.log, state) }

// sdNotify tells systemd, if it listens, and reports whether it does.
func sdNotify(log *zap.Logger, state string) bool {
	told, err := daemon.SdNotify(false, state)
	if err != nil {
		log.Warn("tell systemd", zap.Error(err))
	}
	return told || err != nil
}

// probeServer asks the server over a new connection, as a client would, whether it is
// ready. Any answer is one: it took a connection, a handler and the lock of each
// agent.
func (n sdNotifier) probeServer(ctx context.Context, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+n.address+"/readyz", nil)
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+n.probe.Reveal())
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
