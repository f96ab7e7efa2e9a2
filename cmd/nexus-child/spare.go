package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"go.uber.org/zap"

	"nexus.internal/child"
	"nexus.internal/protocol"
	"nexus.internal/protocol/frame"
	"nexus.internal/protocol/proctree"
	"nexus.internal/protocol/transcript"
)

// runSpare is nexus-child spare: a process that is past its start, and becomes the agent
// that the first line on stdin describes (SUPERVISION §5.9). It returns the exit status:
// that of the agent; 0 if it is told to end before it is one.
func runSpare(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer, environ []string) int {
	if len(args) > 0 {
		fmt.Fprintf(stderr, "nexus-child: spare takes no arguments\nTry nexus-child --help.\n")
		return 2
	}
	b, err := awaitBecome(ctx, stdin, stdout)
	switch {
	case errors.Is(err, io.EOF):
		return 0
	case err != nil:
		fmt.Fprintf(stderr, "nexus-child: spare: %v\n", err)
		return 2
	}
	if b.System != nil {
		if err := os.Setenv(protocol.SystemVariable, *b.System); err != nil {
			fmt.Fprintf(stderr, "nexus-child: spare: %v\n", err)
			return 2
		}
	}
	return runAgent(ctx, b.Args, stdin, stdout, stderr, environ)
}

const (
	// idleTime is how long a spare waits before it rehearses: where spares are taken as soon
	// as they are there, the processors have other work.
	idleTime = 2 * time.Millisecond
	// An agent without a session. Nothing can be made in its home, which cannot exist, and
	// its working directory holds nothing that is anybody's.
	rehearsalLine = `{"type":"become","args":["--no-session","--cwd=/proc/self/task"]}`
	rehearsalHome = "NEXUS_HOME=/proc/nexus"
)

// rehearse makes an agent that nobody hears, and ends it. It leaves nothing behind, but the
// code and the tables that it needed are in memory when this process becomes an agent, which
// then takes half the time. An error leaves that as it was.
func rehearse(ctx context.Context) error {
	b, err := protocol.DecodeBecome([]byte(rehearsalLine))
	if err != nil {
		return err
	}
	f, err := parse(b.Args)
	if err != nil {
		return err
	}
	a, err := assemble(f, []string{rehearsalHome}, zap.NewNop())
	if err != nil {
		return err
	}
	defer a.close()
	var session transcript.Writer
	for _, r := range append(a.settings(f, transcript.Settings{}), transcript.Header{}) {
		if _, err := session.Append(nil, r); err != nil {
			return err
		}
	}
	return child.Serve(ctx, strings.NewReader(""), io.Discard, a.options)
}

// awaitBecome says that the process waits, reads the line that makes it an agent, and
// goes to its working directory. io.EOF says that nobody needs the process any more.
func awaitBecome(ctx context.Context, stdin io.Reader, stdout io.Writer) (protocol.Become, error) {
	// Programs of agents, which run as the same user, could write to its stdin otherwise.
	if err := proctree.SetUndumpable(); err != nil {
		return protocol.Become{}, err
	}
	line, err := json.Marshal(protocol.SpareReady{Type: protocol.TypeSpare})
	if err != nil {
		return protocol.Become{}, err
	}
	if err := frame.NewWriter(stdout).Write(line); err != nil {
		return protocol.Become{}, err
	}
	waits := context.AfterFunc(ctx, func() { os.Exit(0) }) // it has nothing to save
	rehearsed := make(chan struct{})
	rehearsal := time.AfterFunc(idleTime, func() {
		defer close(rehearsed)
		_ = rehearse(ctx) // an agent's own start says what is wrong
	})
	r := frame.NewReader(stdin)
	line, err = r.Next()
	if !rehearsal.Stop() {
		<-rehearsed
	}
	if err != nil {
		return protocol.Become{}, err
	}
	if !waits() {
		return protocol.Become{}, io.EOF
	}
	if r.Buffered() > 0 {
		return protocol.Become{}, errors.New("there are commands before it is ready")
	}
	b, err := protocol.DecodeBecome(line)
	if err == nil && b.Dir != "" {
		err = os.Chdir(b.Dir)
	}
	return b, err
}
