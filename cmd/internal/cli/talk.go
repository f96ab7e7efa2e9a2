package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/client"
)

// cancelPatience bounds the wait for a turn to end after an interrupt.
const cancelPatience = 10 * time.Second

// maxStdin bounds a message from stdin, in bytes: what a request can carry.
const maxStdin = 1 << 20

func (a *App) sendVerb() *cobra.Command {
	var p api.SendParams
	var requestID, whenBusy string
	var timeout time.Duration
	cmd := a.verb("send AGENT MESSAGE [FLAGS]", "send", 2, mustRun, func(ctx context.Context, c *client.Client, args []string) error {
		p.Content = args[1]
		if args[1] == "-" {
			text, err := io.ReadAll(io.LimitReader(a.Stdin, maxStdin+1))
			if err != nil {
				return fmt.Errorf("read the message from stdin: %w", err)
			}
			if len(text) > maxStdin {
				return fmt.Errorf("the message on stdin is longer than %d bytes", maxStdin)
			}
			p.Content = string(text)
		}
		if requestID == "" {
			requestID = uuid.NewString()
		}
		p.RequestID = &requestID
		if whenBusy != "" {
			p.WhenBusy = &whenBusy
		}
		if timeout > 0 {
			seconds := timeout.Seconds()
			p.TimeoutS = &seconds
		}
		return a.send(ctx, c, args[0], p)
	})
	cmd.Long = "Send a message and print the answer as it comes. MESSAGE - reads it from stdin. An interrupt cancels the turn."
	cmd.Flags().StringVar(&requestID, "request-id", "", "id to cancel it by, and to send it no more than once")
	cmd.Flags().StringVar(&whenBusy, "when-busy", "", "queue (the default), reject or steer")
	cmd.Flags().DurationVar(&timeout, "timeout", 0, "limit on the turn, as in 90s")
	return cmd
}

// send prints the answer as it comes, or the whole result with --json.
func (a *App) send(ctx context.Context, c *client.Client, agent string, p api.SendParams) error {
	stop := a.cancelOnInterrupt(ctx, c, agent, *p.RequestID)
	defer stop()
	if a.json {
		result, err := c.Send(ctx, agent, p)
		if err != nil {
			return err
		}
		return errors.Join(a.printJSON(result), cancelled(result))
	}
	// What stdout does not take any more does not stop the turn.
	var printed strings.Builder
	var broken error
	result, err := c.SendStream(ctx, agent, p, func(chunk string) {
		printed.WriteString(chunk)
		if broken == nil {
			broken = a.printf("%s", chunk)
		}
	})
	if err == nil && result.Replayed && printed.Len() == 0 {
		printed.WriteString(api.Value(result.Content))
		broken = a.printf("%s", printed.String())
	}
	if printed.Len() > 0 && !strings.HasSuffix(printed.String(), "\n") && broken == nil {
		broken = a.printf("\n")
	}
	if err != nil {
		return err
	}
	if result.Truncated {
		fmt.Fprintf(a.Stderr, "%s: the answer was too long to be kept whole\n", a.Name)
	}
	return errors.Join(broken, cancelled(result))
}

func cancelled(result api.SendResult) error {
	if result.Cancelled {
		return errors.New("the turn was cancelled")
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
		if _, err := c.Cancel(limited, agent, requestID); err != nil {
			fmt.Fprintf(a.Stderr, "%s: cancel: %v\n", a.Name, err)
		}
	})
	return func() {
		close(done)
		watching.Wait()
		release()
	}
}

func (a *App) messagesVerb() *cobra.Command {
	var offset, limit uint64
	cmd := a.verb("messages AGENT [FLAGS]", "get_messages", 1, mustRun, func(ctx context.Context, c *client.Client, args []string) error {
		return a.messages(ctx, c, args[0], offset, limit)
	})
	cmd.Flags().Uint64Var(&offset, "offset", 0, "index of the first message")
	cmd.Flags().Uint64Var(&limit, "limit", 0, "at most this many (0: all)")
	return cmd
}

// messages puts the pages together.
func (a *App) messages(ctx context.Context, c *client.Client, agent string, offset, limit uint64) error {
	all := api.GetMessagesResult{Offset: offset}
	for {
		next := offset + uint64(len(all.Messages))
		page := api.GetMessagesParams{Offset: &next}
		if limit > 0 {
			left := limit - uint64(len(all.Messages))
			page.Limit = &left
		}
		got, err := c.GetMessages(ctx, agent, page)
		if err != nil {
			return err
		}
		all.Messages, all.Total = append(all.Messages, got.Messages...), got.Total
		have := uint64(len(all.Messages))
		if len(got.Messages) == 0 || offset+have >= got.Total || limit > 0 && have >= limit {
			break
		}
	}
	if a.json {
		return a.printJSON(all)
	}
	for _, m := range all.Messages {
		note := ""
		if m.Interrupted {
			note = " (interrupted)"
		}
		for _, call := range m.ToolCalls {
			note += " → " + call.Name + " " + string(call.Input)
		}
		if err := a.printf("%s: %s%s\n", or(m.ToolName, string(m.Role)), strings.TrimRight(m.Content, "\n"), note); err != nil {
			return err
		}
	}
	return nil
}

func (a *App) eventsVerb() *cobra.Command {
	var after string
	cmd := a.verb("events AGENT [FLAGS]", "", 1, mustRun, func(ctx context.Context, c *client.Client, args []string) error {
		from := uint64(client.FromNow)
		if after != "" {
			n, err := strconv.ParseUint(after, 10, 64)
			if err != nil {
				return Usage("--after must be the number of an event, not %q", after)
			}
			from = n
		}
		return a.events(ctx, c, args[0], from)
	})
	cmd.Short = "Print what an agent does, one JSON event a line, until it is destroyed"
	cmd.Flags().StringVar(&after, "after", "", "number of the last event seen; 0 is all that is kept (default: only what comes)")
	return cmd
}

func (a *App) events(ctx context.Context, c *client.Client, agent string, after uint64) error {
	ctx, release := interruptible(ctx)
	defer release()
	for event, err := range c.Events(ctx, agent, after) {
		if ctx.Err() != nil {
			return nil // that is how it is ended
		}
		if err != nil {
			return err
		}
		line := struct {
			Seq   uint64         `json:"seq,omitzero"`
			Event jsontext.Value `json:"event"`
		}{event.Seq, event.Data}
		if err := a.printJSON(line); err != nil {
			return err
		}
	}
	return nil
}
