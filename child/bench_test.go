package child_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"nexus.internal/child"
	"nexus.internal/child/journal"
	"nexus.internal/child/provider/scripted"
	"nexus.internal/protocol"
	"nexus.internal/protocol/transcript"
)

// turnsOfOne is how many turns one child of the benchmark takes, so that the
// conversation stays about as long as it was.
const turnsOfOne = 100

// BenchmarkTurn is one prompt with an answer of one word, from the command to
// the response. Turns of a long conversation are to cost what those of a short
// one do, and both little more than the pipes do that carry them.
func BenchmarkTurn(b *testing.B) {
	frames := []string{`{"type":"message_update"}` + "\n", `{"type":"agent_end"}` + "\n", `{"type":"response"}` + "\n"}
	b.Run("floor", func(b *testing.B) {
		turns(b, func() (func(in, out *os.File) error, func()) {
			return func(in, out *os.File) error {
				commands := bufio.NewScanner(in)
				for commands.Scan() {
					for _, f := range frames {
						if _, err := out.WriteString(f); err != nil {
							return err
						}
					}
				}
				return commands.Err()
			}, func() {}
		})
	})
	for _, saved := range []string{"no", "os", "turn"} {
		for _, messages := range []int{10, 2000} {
			b.Run(fmt.Sprintf("saved=%s/messages=%d", saved, messages), func(b *testing.B) {
				turns(b, func() (func(in, out *os.File) error, func()) { return serveWith(b, saved, messages) })
			})
		}
	}
}

// serveWith makes a child with that many messages behind it.
func serveWith(b testing.TB, saved string, messages int) (serve func(in, out *os.File) error, end func()) {
	b.Helper()
	offline, err := scripted.New(scripted.Options{})
	if err != nil {
		b.Fatal(err)
	}
	o := options()
	o.Start = child.Selected{Provider: offline, ProviderName: "offline", Model: scripted.Name, ContextWindow: 128_000, Offline: true}
	o.SessionUpdates = false
	var records []transcript.Record
	for i := range messages / 2 {
		id := fmt.Sprint("before", i)
		for _, role := range []protocol.Role{protocol.RoleUser, protocol.RoleAssistant} {
			m := protocol.Message{Role: role, Content: "echo something short", TurnID: id, At: time.Unix(1, 0).UTC()}
			o.State.Messages = append(o.State.Messages, m)
			records = append(records, transcript.Message{Message: m})
		}
	}
	end = func() {}
	if saved != "no" {
		j, _, err := journal.Open(journal.Options{Dir: b.TempDir(), Name: "bench", NoSync: saved == "os"})
		if err != nil {
			b.Fatal(err)
		}
		if err := j.Append(records...); err != nil {
			b.Fatal(err)
		}
		o.Journal = j
		end = func() {
			if err := j.Close(); err != nil {
				b.Error(err)
			}
		}
	}
	return func(in, out *os.File) error { return child.Serve(context.Background(), in, out, o) }, end
}

// turns measures how long the response to a prompt takes, over two pipes.
func turns(b *testing.B, begin func() (serve func(in, out *os.File) error, end func())) {
	b.Helper()
	b.ReportAllocs()
	var stop func()
	var stdin *os.File
	var stdout *bufio.Reader
	start := func() {
		childIn, parentOut, err := os.Pipe()
		if err != nil {
			b.Fatal(err)
		}
		parentIn, childOut, err := os.Pipe()
		if err != nil {
			b.Fatal(err)
		}
		serve, end := begin()
		ended := make(chan error, 1)
		go func() { ended <- serve(childIn, childOut) }()
		stdin, stdout = parentOut, bufio.NewReader(parentIn)
		stop = func() {
			parentOut.Close()
			if err := <-ended; err != nil {
				b.Error(err)
			}
			end()
			for _, f := range []*os.File{childIn, childOut, parentIn} {
				f.Close()
			}
		}
	}
	one := func() {
		if _, err := stdin.WriteString(`{"type":"prompt","id":"1","message":"echo x"}` + "\n"); err != nil {
			b.Fatal(err)
		}
		for line := ""; !strings.HasPrefix(line, `{"type":"response"`); {
			var err error
			if line, err = stdout.ReadString('\n'); err != nil {
				b.Fatal(err)
			}
		}
	}
	left := 0
	for b.Loop() {
		if left == 0 {
			b.StopTimer()
			if stop != nil {
				stop()
			}
			start()
			one()
			left = turnsOfOne
			b.StartTimer()
		}
		one()
		left--
	}
	stop()
}
