package probe

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"

	"nexus.internal/protocol"
	"nexus.internal/protocol/frame"
	"nexus.internal/protocol/textcut"
)

// maxStderr is how much of what an agent says on stderr is kept for an error, in bytes.
const maxStderr = 4 << 10

// agent is one nexus-child with the program that is probed.
type agent struct {
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	frames chan protocol.Event // closed at the end of stdout; what nobody reads holds the agent up
	stderr tail
	done   chan struct{} // closed when the process has ended
	stop   context.CancelFunc
	ids    int
}

// tail keeps the end of what is written to it.
type tail struct {
	mu   sync.Mutex
	text []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, p...)
	if over := len(t.text) - maxStderr; over > 0 {
		t.text = t.text[over:]
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(string(bytes.ToValidUTF8(t.text, []byte("\uFFFD"))))
}

// start starts nexus-child. Its end must be called.
func start(ctx context.Context, child string, environ []string, dir string, args ...string) (*agent, error) {
	ctx, stop := context.WithCancel(ctx)
	a := &agent{cmd: exec.CommandContext(ctx, child, args...), frames: make(chan protocol.Event), done: make(chan struct{}), stop: stop}
	a.cmd.Env, a.cmd.Dir, a.cmd.Stderr = environ, dir, &a.stderr
	stdin, err := a.cmd.StdinPipe()
	if err != nil {
		stop()
		return nil, err
	}
	a.stdin = stdin
	stdout, err := a.cmd.StdoutPipe()
	if err == nil {
		err = a.cmd.Start()
	}
	if err != nil {
		stop()
		return nil, err
	}
	go a.read(ctx, stdout)
	return a, nil
}

// read passes on the frames until stdout ends, and then waits for the process.
func (a *agent) read(ctx context.Context, stdout io.Reader) {
	defer close(a.done)
	lines := frame.NewReader(stdout)
	for {
		line, err := lines.Next()
		if err != nil {
			break
		}
		event, err := protocol.Frame{Raw: bytes.Clone(line)}.Decode()
		if err != nil {
			continue
		}
		select {
		case a.frames <- event:
		case <-ctx.Done():
		}
	}
	close(a.frames)
	_ = a.cmd.Wait() // its state says how
}

// end ends the process and joins all.
func (a *agent) end() {
	a.stop()
	<-a.done
}

// failure is why an agent says nothing more.
func (a *agent) failure() error {
	<-a.done
	said := a.stderr.String()
	if i := strings.LastIndexByte(said, '\n'); i >= 0 {
		said = said[i+1:]
	}
	return fmt.Errorf("nexus-child ended: %v: %s", a.cmd.ProcessState, textcut.Clip(said, 500))
}

func (a *agent) send(c protocol.Command) error {
	line, err := protocol.AppendCommand(nil, c)
	if err == nil {
		_, err = a.stdin.Write(append(line, '\n'))
	}
	return err
}

// next is the next event of a type; others are passed to each, which may be nil.
func next[E protocol.Event](ctx context.Context, a *agent, each func(protocol.Event)) (e E, err error) {
	for {
		select {
		case event, ok := <-a.frames:
			if !ok {
				return e, a.failure()
			}
			if found, is := event.(E); is {
				return found, nil
			}
			if each != nil {
				each(event)
			}
		case <-ctx.Done():
			return e, context.Cause(ctx)
		}
	}
}

// ask gives a command that is answered at once.
func ask[R any](ctx context.Context, a *agent, c protocol.Request[R]) (r R, err error) {
	a.ids++
	if err := a.send(c.WithID(fmt.Sprintf("ask-%d", a.ids))); err != nil {
		return r, err
	}
	response, err := next[protocol.Response](ctx, a, nil)
	if err != nil {
		return r, err
	}
	if no := response.Refusal(); no != nil {
		return r, errors.New(no.Error)
	}
	return c.Answer(response)
}

// turn is what one prompt came to.
type turn struct {
	text      string
	first     time.Duration // until the first text; 0 if there was none
	took      time.Duration
	cancelled bool
	err       error
}

// prompt runs a turn. begun, unless nil, is called once some text has come.
func (a *agent) prompt(ctx context.Context, message string, begun func()) turn {
	return a.promptUntil(ctx, message, shortText, begun)
}

// promptUntil runs a turn, and calls begun once so much text has come, in bytes.
func (a *agent) promptUntil(ctx context.Context, message string, text int, begun func()) (t turn) {
	a.ids++
	id, at := fmt.Sprintf("turn-%d", a.ids), time.Now()
	if t.err = a.send(protocol.Prompt{ID: id, Message: message}); t.err != nil {
		return t
	}
	var said strings.Builder
	each := func(e protocol.Event) {
		update, ok := e.(protocol.MessageUpdate)
		if !ok {
			return
		}
		delta, ok := update.Event.(protocol.TextDelta)
		if !ok {
			return
		}
		if t.first == 0 {
			t.first = time.Since(at)
		}
		said.WriteString(delta.Delta)
		if said.Len() > text && begun != nil {
			begun()
			begun = nil
		}
	}
	for {
		response, err := next[protocol.Response](ctx, a, each)
		t.text, t.took = said.String(), time.Since(at)
		switch {
		case err != nil:
			t.err = err
			return t
		case response.ID != id:
			continue
		}
		if no := response.Refusal(); no != nil {
			t.err = errors.New(no.Error)
			return t
		}
		done, err := protocol.Prompt{}.Answer(response)
		t.cancelled, t.err = done.Cancelled, err
		return t
	}
}

// bytesRead is how much a process has read so far, from files and pipes.
func bytesRead(pid int) (n int64) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/io", pid))
	if err != nil {
		return 0
	}
	_, _ = fmt.Sscanf(string(text), "rchar: %d", &n)
	return n
}

// programFlag is the value of --program.
func programFlag(p protocol.AgentProgram) (string, error) {
	text, err := json.Marshal(p)
	return "--program=" + string(text), err
}
