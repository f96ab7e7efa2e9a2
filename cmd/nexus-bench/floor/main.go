// Nexus-bench-floor is the bare Go process that nexus-bench compares with
// (SPEC.md §8). It links a buffered reader and nothing that could make it
// slower to start or larger: neither fmt, nor net/http, nor a package of ours.
//
//	nexus-bench-floor echo           a first line, then every line given back
//	nexus-bench-floor lines N   N lines, each by a write of its own
//	nexus-bench-floor endless N      as a child: ready, then, once it is sent
//	                                 something, N bytes of a line without an end
//
// It ends with its stdin, or when it has written what it was asked for.
package main

import (
	"bufio"
	"errors"
	"io"
	"os"
	"strconv"
	"strings"
)

const (
	// sampleLine is a frame of the size that a streaming child writes.
	sampleLine = `{"type":"message_update","event":{"type":"text_delta","delta":"word "}}` + "\n"
	// ready is what a supervisor waits for (SPEC.md §3.1).
	ready = `{"type":"ready","session_id":"endless","model":"none","protocol_version":1}` + "\n"
)

func main() {
	if err := play(os.Args[1:]); err != nil {
		_, _ = os.Stderr.WriteString("nexus-bench-floor: " + err.Error() + "\n") // there is nobody else to tell
		os.Exit(1)
	}
}

func play(args []string) error {
	switch {
	case len(args) == 1 && args[0] == "echo":
		return echo()
	case len(args) == 2:
		n, err := strconv.Atoi(args[1])
		switch {
		case err != nil:
			return err
		case args[0] == "lines":
			return repeat([]byte(sampleLine), n)
		case args[0] == "endless":
			return endless(n)
		}
	}
	return errors.New("usage: echo | lines N | endless N")
}

// echo says that it is there, then gives back every line it reads.
func echo() error {
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

func endless(n int) error {
	if _, err := os.Stdout.WriteString(ready); err != nil {
		return err
	}
	if _, err := os.Stdin.Read(make([]byte, 1)); err != nil {
		return ignoreEOF(err)
	}
	piece := []byte(strings.Repeat("x", 64<<10))
	return repeat(piece, n/len(piece))
}

func repeat(piece []byte, n int) error {
	for range n {
		if _, err := os.Stdout.Write(piece); err != nil {
			return err
		}
	}
	return nil
}

func ignoreEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}
