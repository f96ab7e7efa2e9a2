package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"time"

	"nexus.internal/child/journal"
)

// echo is a running echo process. call is safe for concurrent use.
type echo struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	first string // its first line

	mu  sync.Mutex // held for one round trip
	out *bufio.Reader
}

// startEcho runs a program that writes a first line, and returns once it has.
func startEcho(cmd *exec.Cmd) (*echo, error) {
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
	if e.first, err = e.out.ReadString('\n'); err != nil {
		e.close()
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
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

// start is how long a program takes from its start to its first line, in
// seconds. Its end is waited for, and not counted.
func start(cmd *exec.Cmd) (float64, error) {
	began := time.Now()
	e, err := startEcho(cmd)
	if err != nil {
		return 0, err
	}
	taken := time.Since(began).Seconds()
	e.close()
	return taken, nil
}

// forkExec is the floor of everything that starts a process.
func (b *bench) forkExec(ctx context.Context) step {
	return func() (float64, error) { return start(exec.CommandContext(ctx, b.floor(), "echo")) }
}

// linesPerSecond splits n lines off a pipe, each of them written by one write.
func (b *bench) linesPerSecond(ctx context.Context, n int) step {
	return func() (rate float64, err error) {
		cmd := exec.CommandContext(ctx, b.floor(), "lines", strconv.Itoa(n))
		out, err := cmd.StdoutPipe()
		if err != nil {
			return 0, err
		}
		if err := cmd.Start(); err != nil {
			return 0, err
		}
		defer func() { err = errors.Join(err, cmd.Wait()) }()
		reader := bufio.NewReaderSize(out, 64<<10)
		if _, err := reader.ReadSlice('\n'); err != nil { // the start is not counted
			return 0, err
		}
		began, count := time.Now(), 0
		for {
			switch _, err := reader.ReadSlice('\n'); {
			case errors.Is(err, io.EOF):
				return float64(count) / time.Since(began).Seconds(), nil
			case err != nil:
				return 0, err
			}
			count++
		}
	}
}

// fdatasyncs is the median of n appends to file, each with fdatasync, and each
// after pause, which is not counted: a disk that is kept busy is a faster one.
func fdatasyncs(ctx context.Context, file *os.File, n int, pause func() error) step {
	record := append(bytes.Repeat([]byte("x"), 255), '\n')
	return func() (float64, error) {
		taken := make([]float64, n)
		for i := range taken {
			if err := errors.Join(ctx.Err(), pause()); err != nil {
				return 0, err
			}
			began := time.Now()
			if _, err := file.Write(record); err != nil {
				return 0, err
			}
			if err := journal.SyncData(file); err != nil {
				return 0, err
			}
			taken[i] = time.Since(began).Seconds()
		}
		return median(taken), nil
	}
}
