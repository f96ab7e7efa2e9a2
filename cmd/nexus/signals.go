package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"nexus.internal/cmd/internal/cli"
)

// onSignal is what a server does at its signals.
type onSignal struct {
	// ask asks the server to end, at SIGINT, SIGTERM, or a SIGHUP that says that its
	// terminal is gone.
	ask context.CancelFunc
	// config is reloaded at any other SIGHUP.
	config *configuration
	// keys are closed before a second signal ends the process.
	keys io.Closer
}

// watch begins to heed signals. A SIGINT or SIGTERM that comes once the server was
// asked to end (asked has ended, however it came to that) ends the process at once, as
// that signal does, after keys are closed; not one that comes with the signal that asked
// (cli.SecondSignal). The caller must call stop; signals have no effect from then on.
func (on onSignal) watch(asked context.Context) (stop func()) {
	closing := terminalClosing()
	signals := make(chan os.Signal, 2) // one for each call
	hangups := make(chan os.Signal, 1) // another one while a reload runs asks for one more
	// A script's background job has SIGINT ignored from the start. Notify changes what
	// Ignored says, and Reset does not change it back.
	ignored := signal.Ignored(syscall.SIGINT)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	signal.Notify(hangups, syscall.SIGHUP)
	ctx, cancel := context.WithCancel(asked)
	ended := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		var last os.Signal
		select {
		case <-signals:
			on.ask()
			last = cli.SecondSignal(signals, ended)
		case <-asked.Done():
			select {
			case last = <-signals:
			case <-ended:
			}
		case <-ended:
		}
		if last != nil {
			_ = on.keys.Close()
			cli.EndBySignal(last, ignored && last == syscall.SIGINT)
		}
	})
	watching.Go(func() {
		for {
			select {
			case <-hangups:
				if closing() {
					on.ask()
				} else {
					on.config.reloadTelling(ctx)
				}
			case <-ended:
				return
			}
		}
	})
	return func() {
		close(ended)
		cancel()
		watching.Wait()
	}
}

// terminalClosing returns a function that reports whether the terminal, on which this
// process was started without nohup(1), is gone: then a SIGHUP comes of that, and not
// from somebody who wants a reload.
func terminalClosing() func() bool {
	there := func() bool {
		tty, err := os.Open("/dev/tty")
		if err == nil {
			_ = tty.Close()
		}
		return err == nil
	}
	if signal.Ignored(syscall.SIGHUP) || !there() {
		return func() bool { return false }
	}
	return func() bool { return !there() }
}
