package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/client"
	"nexus.internal/protocol"
)

// cancelPatience bounds the wait for a turn to end after an interrupt.
const cancelPatience = 10 * time.Second

// maxStdin bounds a message from stdin, in bytes: what a request can carry.
const maxStdin = 1 << 20

func (a *App) sendVerb() *cobra.Command {
	var p api.SendParams
	var requestID, whenBusy, onCrash string
	var timeout time.Duration
	cmd := a.verb("send AGENT MESSAGE [FLAGS]", "send", 2, mustRun, func(ctx context.Context, c *client.Client, args []string) error {
		content, err := a.message(args[1])
		if err != nil {
			return err
		}
		p.Content = content
		if requestID == "" {
			requestID = uuid.NewString()
		}
		p.RequestID = &requestID
		if whenBusy != "" {
			p.WhenBusy = &whenBusy
		}
		if onCrash != "" {
			p.OnCrash = &onCrash
		}
		if timeout != 0 {
			seconds := timeout.Seconds()
			p.TimeoutS = &seconds
		}
		return a.send(ctx, c, args[0], p)
	})
	cmd.Long = "Send a message and print the answer as it comes. MESSAGE - reads it from stdin. An interrupt cancels the turn."
	cmd.Flags().StringVar(&requestID, "request-id", "", "id to cancel it by, and to send it no more than once")
	cmd.Flags().StringVar(&whenBusy, "when-busy", "", "queue (the default), reject or steer")
	cmd.Flags().StringVar(&onCrash, "on-crash", "", "fail (the default) or retry: send it once more when the agent is back")
	cmd.Flags().DurationVar(&timeout, "timeout", 0, "limit on the turn, as in 90s")
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) error {
		switch changed := cmd.Flags().Changed; {
		case changed("request-id") && requestID == "":
			return Usage("--request-id must not be empty")
		case changed("when-busy") && whenBusy == "":
			return Usage("--when-busy must be queue, reject or steer, not empty")
		case changed("on-crash") && onCrash == "":
			return Usage("--on-crash must be fail or retry, not empty")
		case changed("timeout") && timeout <= 0:
			return Usage("--timeout must be above 0, not %v", timeout)
		}
		return nil
	}
	return cmd
}

// message is the text of MESSAGE, read from stdin for "-".
func (a *App) message(arg string) (string, error) {
	text, name, fail := arg, "MESSAGE", Usage
	if arg == "-" {
		read, err := io.ReadAll(io.LimitReader(a.Stdin, maxStdin+1))
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

// serverGone says how to go on if err is that the server ended while it was called.
// Other errors are returned as they are.
func serverGone(err error, requestID string) error {
	if !errors.Is(err, client.ErrNoServer) {
		return err
	}
	return fmt.Errorf("the server ended before the turn did: start it again with nexus serve; the same send with --request-id %s "+
		"tells how the turn ended and does not run it again, which a new id does", requestID)
}

// send prints the answer as it comes, or the whole result with --json.
func (a *App) send(ctx context.Context, c *client.Client, agent string, p api.SendParams) error {
	defer a.cancelOnInterrupt(ctx, c, agent, *p.RequestID)()
	defer a.tellWaiting(ctx, c, agent)()
	if a.json {
		result, err := client.Do(ctx, c, agent, api.Send, p)
		if err != nil {
			return serverGone(err, *p.RequestID)
		}
		return errors.Join(a.printJSON(result), a.notAnswered(agent, result))
	}
	text := &answer{out: a.out}
	var result api.SendResult
	var err error
	for part, failed := range c.SendStream(ctx, agent, p) {
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
	broken := text.end()
	if err != nil {
		return serverGone(err, *p.RequestID)
	}
	if result.Truncated {
		a.note("the answer was too long to be kept whole")
	}
	return errors.Join(broken, a.notAnswered(agent, result))
}

// notAnswered is why a turn that ended did not come to its answer; nil if it did.
func (a *App) notAnswered(agent string, result api.SendResult) error {
	switch {
	case result.Cancelled:
		return errors.New("the turn was cancelled")
	case result.StopReason == string(protocol.StopMaxIterations):
		return fmt.Errorf("the turn was halted at its limit of model calls (%s): another send lets the agent go on", result.StopReason)
	case strings.TrimSpace(protocol.Value(result.Content)) == "":
		return fmt.Errorf("the model ended the turn without a word: %s messages %s shows what was done", a.self(), agent)
	}
	return nil
}

// cancelOnInterrupt cancels the request at the first interrupt; the second one
// ends the program. The caller must call stop.
func (a *App) cancelOnInterrupt(ctx context.Context, c *client.Client, agent, requestID string) (stop func()) {
	interrupted, release := interruptible(ctx)
	done := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		select {
		case <-done:
			return
		case <-interrupted.Done():
		}
		release()
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
