package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/spf13/pflag"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/client"
	"nexus.internal/protocol"
)

// cancelPatience bounds the wait for a turn to end after an interrupt.
const cancelPatience = 10 * time.Second

// maxStdin bounds a message from stdin, in bytes: what a request can carry.
const maxStdin = 1 << 20

// MaxAttached bounds what the attachments of a request bring, in bytes: its message and the rest
// have to fit into the same MiB.
const MaxAttached = 900 << 10

// send is the verb that sends a message.
type send struct {
	p       api.SendParams
	timeout time.Duration
	attach  []string // paths
}

const sendHelp = "Send a message and print the answer as it comes. MESSAGE - reads it from stdin; one that begins with - comes after --. An interrupt cancels the turn. At a terminal its calls are shown, and approvals asked for."

func (v *send) flags(f *pflag.FlagSet) {
	f.Var(optional{&v.p.RequestID}, "request-id", "id by which to cancel it, and to send it at most once")
	f.Var(optional{&v.p.WhenBusy}, "when-busy", "queue (the default), reject or steer")
	f.Var(optional{&v.p.OnCrash}, "on-crash", "fail (the default) or retry: send it once more after the restart")
	f.DurationVar(&v.timeout, "timeout", 0, "limit on the turn, as in 90s")
	f.StringArrayVar(&v.attach, "attach", nil, "`FILE`, a text or an image, that goes with the message and is read here; may be repeated")
	Sets(f, "attach", "attachments")
}

func (v *send) check(f *pflag.FlagSet, _ []string) error {
	return aboveZero(f, "timeout", v.timeout)
}

func aboveZero(f *pflag.FlagSet, name string, value time.Duration) error {
	if f.Changed(name) && value <= 0 {
		return Usage("--%s must be above 0, not %v", name, value)
	}
	return nil
}

// run prints the answer as it comes, or the whole result as a value. Where a person attends to it, that
// one is asked whether a turn that was halted goes on.
func (v *send) run(ctx context.Context, a *App, c *client.Client, args []string) (err error) {
	agent := args[0]
	if v.p.Content, err = ReadMessage(a.Stdin, args[1]); err != nil {
		return err
	}
	if v.p.Attachments, err = Attachments(v.attach); err != nil {
		return err
	}
	if v.p.RequestID == nil {
		v.p.RequestID = new(uuid.NewString())
	}
	if v.timeout != 0 {
		v.p.TimeoutS = new(v.timeout.Seconds())
	}
	person := a.person()
	defer person.close()
	for {
		s := &attended{a: a, c: c, agent: agent, id: *v.p.RequestID, person: person}
		result, broken, err := v.once(ctx, s)
		switch {
		case err != nil:
			return err
		case broken != nil || person == nil || result.StopReason != string(protocol.StopMaxIterations) || !s.goesOn():
			return errors.Join(broken, notAnswered(a, agent, result))
		}
		v.p.Content, v.p.Attachments, v.p.RequestID = "Go on.", nil, new(uuid.NewString())
	}
}

// once sends the message, and tells of its turn. broken is what is wrong with stdout.
func (v *send) once(ctx context.Context, s *attended) (result api.SendResult, broken, err error) {
	defer cancelOnInterrupt(ctx, s.a, s.c, s.agent, s.id)()
	told := false
	if s.person != nil {
		result, told, broken, err = s.attend(ctx, v.p)
	}
	if !told {
		defer tellWaiting(ctx, s.a, s.c, s.agent)()
	}
	switch {
	case told:
	case s.a.Structured():
		if result, err = client.Do(ctx, s.c, s.agent, api.Send, v.p); err == nil {
			broken = s.a.PrintValue(result)
		}
	default:
		result, broken, err = streamed(s.a, s.c.SendStream(ctx, s.agent, v.p))
	}
	if err != nil {
		return result, broken, s.a.serverEnded(err, fmt.Sprintf("; the same send with --request-id %s tells how the turn ended and does not run it again, which a new id does", s.id))
	}
	if result.Truncated && !s.a.Structured() {
		s.a.note("the answer was too long to be kept whole")
	}
	return result, broken, nil
}

// Attachments are files of ours with what is in them; nil for none.
func Attachments(paths []string) (*[]protocol.Attachment, error) {
	var list []protocol.Attachment
	total := 0
	for _, path := range paths {
		a, err := client.Attach(path)
		if err != nil {
			return nil, err
		}
		if total += len(protocol.Value(a.Text)) + len(protocol.Value(a.Data)); total > MaxAttached {
			return nil, fmt.Errorf("the attachments have more than the %d bytes that a request can carry (images and other bytes take a third more): put them where the agent reads them, and name them in the message", MaxAttached)
		}
		list = append(list, a)
	}
	if list == nil {
		return nil, nil
	}
	return &list, nil
}

// streamed prints an answer as it comes. broken is what is wrong with stdout.
func streamed(a *App, parts iter.Seq2[client.Part, error]) (result api.SendResult, broken, err error) {
	text := &answer{out: a.out}
	for part, failed := range parts {
		if failed != nil {
			err = failed
		}
		switch part := part.(type) {
		case client.Restart:
			text.restart()
			a.note("the agent crashed, or the connection broke; the answer begins anew")
		case client.Result:
			result = api.SendResult(part)
			err = text.complete(result)
		case client.Text:
			text.add(string(part))
		}
	}
	return result, text.end(), err
}

// ReadMessage is the text of MESSAGE, read from stdin for "-". It is an error if that is empty, not UTF-8 or too long.
func ReadMessage(stdin io.Reader, arg string) (string, error) {
	text, name, fail := arg, "MESSAGE", Usage
	if arg == "-" {
		read, err := io.ReadAll(io.LimitReader(stdin, maxStdin+1))
		if err != nil {
			return "", fmt.Errorf("read the message from stdin: %w", err)
		}
		text, name, fail = string(read), "the message on stdin", fmt.Errorf
	}
	switch {
	case len(text) > maxStdin:
		return "", fail("%s is longer than %d bytes", name, maxStdin)
	case !utf8.ValidString(text):
		return "", fail("%s is not UTF-8", name)
	case strings.TrimSpace(text) == "":
		return "", fail("%s is empty", name)
	}
	return text, nil
}

// notAnswered is why a turn that ended did not come to its answer; nil if it did.
func notAnswered(a *App, agent string, result api.SendResult) error {
	switch {
	case result.Cancelled:
		return errors.New("the turn was cancelled")
	case result.StopReason == string(protocol.StopMaxIterations):
		return fmt.Errorf("the turn was halted at its limit of model calls (%s): another send lets the agent go on", result.StopReason)
	case result.StopReason == string(protocol.StopMaxTokens):
		return fmt.Errorf("the answer was cut off at the model's limit of tokens (%s): another send lets the agent go on", result.StopReason)
	case result.StopReason == string(protocol.StopContentFilter):
		return fmt.Errorf("the answer was cut off by the model's service, which refused or filtered the rest (%s)", result.StopReason)
	case strings.TrimSpace(protocol.Value(result.Content)) == "":
		return fmt.Errorf("the agent ended the turn without a word: %s shows what was done", a.Call("messages "+agent))
	}
	return nil
}

// cancelOnInterrupt cancels the request at the first interrupt; the second one
// ends the program. The caller must call stop.
func cancelOnInterrupt(ctx context.Context, a *App, c *client.Client, agent, requestID string) (stop func()) {
	interrupted, release := InterruptibleOnce(ctx)
	done := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		select {
		case <-done:
			return
		case <-interrupted.Done():
		}
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), cancelPatience)
		defer cancel()
		if _, err := client.Do(limited, c, agent, api.Cancel, api.CancelParams{RequestID: requestID}); err != nil {
			a.note("cancel: %v", err)
		}
	})
	return func() {
		close(done)
		watching.Wait()
		release()
	}
}
