package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
)

// roleArg as the first argument makes this program play one of the processes
// that the floors are measured with.
const roleArg = "-role"

// sampleLine is a frame of the size that a streaming child writes.
const sampleLine = `{"type":"message_update","event":{"type":"text_delta","delta":"word "}}` + "\n"

func play(role string, args []string) int {
	err := errors.New("no such role")
	switch role {
	case "echo":
		err = playEcho()
	case "flood":
		err = playFlood(args)
	case "http":
		err = playHTTP(args)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "role %s: %v\n", role, err)
		return 1
	}
	return 0
}

// playEcho says that it is there, then gives back every line it reads.
func playEcho() error {
	if _, err := os.Stdout.WriteString("ready\n"); err != nil {
		return err
	}
	in := bufio.NewReader(os.Stdin)
	for {
		line, err := in.ReadSlice('\n')
		if err != nil {
			return ignoreEOF(err)
		}
		if _, err := os.Stdout.Write(line); err != nil {
			return err
		}
	}
}

// playFlood writes args[0] lines as fast as a pipe takes them: each by a write
// of its own, as a child must, or args[1] of them in one.
func playFlood(args []string) error {
	n, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	each, err := strconv.Atoi(args[1])
	if err != nil || each < 1 {
		return fmt.Errorf("lines in one write: %q", args[1])
	}
	lines := []byte(strings.Repeat(sampleLine, each))
	for range n / each {
		if _, err := os.Stdout.Write(lines); err != nil {
			return err
		}
	}
	return nil
}

// playHTTP is the least server that could do a send: path /N passes the body
// to the Nth of args[0] echo processes. It prints its address and ends with its
// stdin.
func playHTTP(args []string) error {
	n, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	echoes := make([]*echo, n)
	for i := range echoes {
		if echoes[i], err = startEcho(context.Background(), self); err != nil {
			return err
		}
		defer echoes[i].close()
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		i, err := strconv.Atoi(r.URL.Path[1:])
		if err != nil || i >= n {
			http.NotFound(w, r)
			return
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		answer, err := echoes[i].call(body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(answer) // a client that is gone is its own loss
	})}
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) })
	fmt.Fprintln(os.Stdout, listener.Addr())
	_, err = io.Copy(io.Discard, os.Stdin)
	_ = server.Close()
	serving.Wait()
	return err
}

// echo is a running echo process. call is safe for concurrent use.
type echo struct {
	cmd *exec.Cmd
	in  io.WriteCloser

	mu  sync.Mutex // held for one round trip
	out *bufio.Reader
}

// startEcho returns once the process has written its first line.
func startEcho(ctx context.Context, self string) (*echo, error) {
	cmd := exec.CommandContext(ctx, self, roleArg, "echo")
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	e := &echo{cmd: cmd, in: in, out: bufio.NewReader(out)}
	if _, err := e.out.ReadSlice('\n'); err != nil {
		e.close()
		return nil, fmt.Errorf("start echo: %w", err)
	}
	return e, nil
}

// call writes one line, its newline excluded, and returns what comes back.
func (e *echo) call(line []byte) ([]byte, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, err := e.in.Write(append(line, '\n')); err != nil {
		return nil, err
	}
	answer, err := e.out.ReadSlice('\n')
	return bytes.Clone(answer), err
}

func (e *echo) close() {
	_ = e.in.Close()
	_ = e.cmd.Wait() // its end is asked for, how it ends is not
}

func ignoreEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}
