package foreign_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"nexus.internal/child/foreign"
	"nexus.internal/child/foreign/foreigntest"
	"nexus.internal/child/foreign/pipe"
	"nexus.internal/protocol"
)

func TestMain(m *testing.M) { foreigntest.Main(m) }

func open(t *testing.T, d foreign.Driver, command ...string) *foreigntest.Agent {
	t.Helper()
	return foreigntest.Open(t, foreigntest.Options{Driver: d, Command: command})
}

// TestPipe has a program answer, and keeps what was said as a turn of nexus leaves it.
func TestPipe(t *testing.T) {
	o := open(t, pipe.Driver{}, "tr", "a-z", "A-Z")
	result, said := o.Turn(t.Context(), "1", "grüße, world")
	if result.Err != nil || result.Stop != protocol.StopCompleted {
		t.Fatalf("result: %+v", result)
	}
	if got, want := said.Text(), "GRüßE, WORLD"; got != want {
		t.Errorf("text: got %q, want %q", got, want)
	}
	want := []protocol.Message{
		{Role: protocol.RoleUser, Content: "grüße, world", TurnID: "1"},
		{Role: protocol.RoleAssistant, Content: "GRüßE, WORLD", TurnID: "1"},
	}
	if diff := cmp.Diff(want, o.Conversation.Messages(), cmpopts.IgnoreFields(protocol.Message{}, "At"), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("conversation (-want +got):\n%s", diff)
	}
}

// TestPipeFails keeps what a program wrote before it failed, and takes the next prompt.
func TestPipeFails(t *testing.T) {
	o := open(t, pipe.Driver{}, "sh", "-c", `read word; echo "$word"; [ "$word" = good ] || { head -c 9999 /dev/zero | tr '\0' x >&2; echo " no such word" >&2; exit 3; }`)
	result, said := o.Turn(t.Context(), "1", "bad\n")
	if e, ok := errors.AsType[*foreign.TurnError](result.Err); !ok || !strings.Contains(e.Message, "exit status 3: x") || !strings.HasSuffix(e.Message, "x no such word") || len(e.Message) > 3<<10 || result.Stop != protocol.StopError {
		t.Errorf("result: %+v", result)
	}
	if got := said.Text(); got != "bad\n" {
		t.Errorf("text: got %q", got)
	}
	if last := o.Conversation.Messages()[1]; !last.Interrupted || last.Content != "bad\n" {
		t.Errorf("kept: %+v", last)
	}
	if result, _ := o.Turn(t.Context(), "2", "good\n"); result.Err != nil {
		t.Errorf("the next prompt: %v", result.Err)
	}
}

// TestPipeCancelled kills the process with all that it started.
func TestPipeCancelled(t *testing.T) {
	pids := filepath.Join(t.TempDir(), "pids")
	o := open(t, pipe.Driver{}, "sh", "-c", `setsid sleep 300 & echo $! $$ >`+pids+`; echo begun; wait`)
	result, _ := o.Cancelled(t.Context(), "1", "go", "begun")
	if result.Err != nil || result.Stop != protocol.StopAborted {
		t.Errorf("result: %+v", result)
	}
	text, err := os.ReadFile(pids)
	if err != nil {
		t.Fatal(err)
	}
	for _, pid := range strings.Fields(string(text)) {
		if _, err := os.Stat("/proc/" + pid); err == nil {
			t.Errorf("process %s is left", pid)
		}
	}
}

// TestReset begins another conversation, which leaves nothing of the old one to the program.
func TestReset(t *testing.T) {
	o := open(t, pipe.Driver{}, "cat")
	if result, _ := o.Turn(t.Context(), "1", "one"); result.Err != nil {
		t.Fatal(result.Err)
	}
	o.Reset("other")
	if _, said := o.Turn(t.Context(), "2", "two"); said.Text() != "two" {
		t.Errorf("said %q", said.Text())
	}
}

// TestLines reads lines of all lengths, and skips one that is too long without keeping it.
func TestLines(t *testing.T) {
	d := &lineDriver{}
	o := open(t, d, "sh", "-c", `head -c 40000000 /dev/zero | tr '\0' x; echo; printf 'short\r\n\nlast'`)
	_ = o
	var got []string
	for {
		line, err := d.program.Next()
		if _, long := errors.AsType[*foreign.TooLongError](err); long {
			got = append(got, "(too long)")
			continue
		}
		if err != nil {
			break
		}
		got = append(got, string(line))
	}
	if want := []string{"(too long)", "short", ""}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestEnd notices that a program ended by itself.
func TestEnd(t *testing.T) {
	o := open(t, &lineDriver{}, "sh", "-c", "read line; kill -9 $$")
	select {
	case <-o.Gone():
		t.Fatal("it ended at once")
	default:
	}
	result, _ := o.Turn(t.Context(), "1", "go")
	if !errors.Is(result.Err, foreign.ErrEnded) || !strings.Contains(result.Err.Error(), "killed by signal 9") {
		t.Errorf("result: %+v", result)
	}
	select {
	case <-o.Gone():
	case <-time.After(10 * time.Second):
		t.Fatal("nobody noticed")
	}
	if !errors.Is(o.Err(), foreign.ErrEnded) {
		t.Errorf("Err: %v", o.Err())
	}
}

// TestUnread ends a program that takes no more input, and says why.
func TestUnread(t *testing.T) {
	defer foreign.SetWriteTimeout(50 * time.Millisecond)()
	o := open(t, &lineDriver{}, "sleep", "300")
	result, _ := o.Turn(t.Context(), "1", strings.Repeat("x", 1<<20))
	if result.Err == nil || !strings.Contains(result.Err.Error(), "write to the program") {
		t.Errorf("result: %+v", result)
	}
	<-o.Gone()
	if err := o.Err(); !errors.Is(err, foreign.ErrEnded) || !strings.Contains(err.Error(), "it did not read its input for 50ms") {
		t.Errorf("Err: %v", err)
	}
}

// lineDriver is a program that takes lines and answers nothing.
type lineDriver struct{ program *foreign.Program }

func (d *lineDriver) Open(_ context.Context, o foreign.Opening) (foreign.Session, error) {
	var err error
	d.program, err = o.Launch()
	return d, err
}

func (*lineDriver) About() foreign.About        { return foreign.About{} }
func (d *lineDriver) Program() *foreign.Program { return d.program }
func (d *lineDriver) Close()                    { d.program.Close() }

func (d *lineDriver) Prompt(_ context.Context, p foreign.Prompt, _ foreign.Sink) (foreign.Done, error) {
	if err := d.program.Write([]byte(p.Text)); err != nil {
		return foreign.Done{}, err
	}
	return foreign.Done{}, d.program.End()
}
