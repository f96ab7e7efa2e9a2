package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// asEnding is the name under which the test program does nothing but heed signals.
const asEnding = "end-at-signals"

// tidied are keys that say so when they are closed.
type tidied struct{}

func (tidied) Close() error {
	_, err := fmt.Println("tidied")
	return err
}

func init() { // before TestMain builds programs
	if filepath.Base(os.Args[0]) == asEnding {
		onSignal{ask: func() { fmt.Println("asked") }, keys: tidied{}}.watch(context.Background())
		fmt.Println("watching")
		<-time.After(time.Minute) // a process that signals do not end is ended by this
	}
}

// A second signal ends the process, also if it was started with SIGINT ignored, as a
// script's background jobs are: sent to itself, SIGINT did nothing then, and the process
// waited for its end.
func TestSecondSignal(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(t.TempDir(), asEnding)
	if err := os.Symlink(self, program); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name   string
		trap   string
		signal syscall.Signal
		killed bool // by the signal; else exit status 1
	}{
		{"SIGINT", "trap - INT", syscall.SIGINT, true},
		{"SIGTERM", "trap - INT", syscall.SIGTERM, true},
		{"an ignored SIGINT", "trap '' INT", syscall.SIGINT, false},
		{"SIGTERM, with SIGINT ignored", "trap '' INT", syscall.SIGTERM, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel() // most of it is waiting
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			cmd := exec.CommandContext(ctx, "sh", "-c", tt.trap+`; exec "$0"`, program)
			stdout, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			lines := bufio.NewScanner(stdout)
			for _, want := range []string{"watching", "asked", "tidied"} {
				if want == "tidied" { // signals that come with the first one do nothing
					again := time.NewTicker(100 * time.Millisecond)
					defer again.Stop()
					pressing := make(chan struct{})
					defer func() { <-pressing }()
					go func() {
						defer close(pressing)
						for range again.C {
							if cmd.Process.Signal(tt.signal) != nil { // it has ended
								return
							}
						}
					}()
				}
				if !lines.Scan() || lines.Text() != want {
					t.Errorf("the process said %q, want %q", lines.Text(), want)
				}
				if want == "watching" {
					_ = cmd.Process.Signal(tt.signal)
				}
			}
			err = cmd.Wait()
			exit, ok := errors.AsType[*exec.ExitError](err)
			if !ok {
				t.Fatalf("the process ended with %v", err)
			}
			status := exit.Sys().(syscall.WaitStatus)
			if tt.killed && status.Signal() != tt.signal || !tt.killed && status.ExitStatus() != 1 {
				t.Errorf("the process ended with %v", err)
			}
		})
	}
}
