package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/client"
	"nexus.internal/protocol/suggest"
)

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
		got, err := client.Do(ctx, c, agent, api.GetMessages, page)
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
		if m.Truncated {
			note = fmt.Sprintf(" … (cut: the whole has %d bytes%s)", m.Size, inFile(m.File))
		}
		if m.Interrupted {
			note += " (interrupted)"
		}
		for _, call := range m.ToolCalls {
			note += " → " + call.Name + " " + string(call.Input)
		}
		if err := a.printf("%s: %s%s\n", cmp.Or(m.ToolName, string(m.Role)), block(strings.TrimRight(m.Content, "\n")), note); err != nil {
			return err
		}
	}
	return nil
}

func inFile(path string) string {
	if path == "" {
		return ""
	}
	return " and is in " + path
}

func (a *App) eventsVerb() *cobra.Command {
	var after string
	var only client.Filter
	cmd := a.verb("events [AGENT] [FLAGS]", "", 0, mustRun, func(ctx context.Context, c *client.Client, args []string) error {
		a.noteUnknownTypes(only.Types)
		ctx, release := interruptible(ctx)
		defer release()
		ctx, stop := a.untilNoReader(ctx)
		defer stop()
		if len(args) == 0 {
			return a.events(ctx, c.FollowAll(ctx, after, only))
		}
		from := uint64(client.FromNow)
		if after != "" {
			n, err := strconv.ParseUint(after, 10, 64)
			if err != nil {
				return Usage("--after must be the number of an event, not %q", after)
			}
			from = n
		}
		return a.events(ctx, c.Follow(ctx, args[0], from, only.Types...))
	})
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) == 1 && cmd.Flags().Changed("agents") {
			return Usage("--agents goes without AGENT")
		}
		return MaxArgs(1)(cmd, args)
	}
	cmd.Short = "Print what an agent does, one JSON event a line, until it is destroyed; without AGENT, what all do"
	cmd.Flags().StringVar(&after, "after", "", "seq, or without AGENT id, of the last event seen; 0 is all that is kept (default: only what comes)")
	cmd.Flags().StringSliceVar(&only.Types, "types", nil, "only events of these types, as in turn_end,error")
	cmd.Flags().StringSliceVar(&only.Agents, "agents", nil, "only those of these agents, as in a,b")
	return cmd
}

// noteUnknownTypes tells which types no event has. The server takes them: a child of a
// later version may have them.
func (a *App) noteUnknownTypes(types []string) {
	var known []string
	for _, row := range api.EventTypes() {
		known = append(known, row.Event.Name())
	}
	for _, name := range types {
		if slices.Contains(known, name) {
			continue
		}
		hint := ""
		if near := suggest.Nearest(name, known); near != "" {
			hint = ": did you mean " + near + "?"
		}
		a.note("events of type %q are not known to this version%s", name, hint)
	}
}

// events prints events until ctx ends. An event of all agents is printed with its id,
// and what the server says of the stream itself as it says it.
func (a *App) events(ctx context.Context, events iter.Seq2[client.Event, error]) error {
	for event, err := range events {
		if errors.Is(context.Cause(ctx), errNoReader) {
			return errNoReader
		}
		if ctx.Err() != nil {
			return nil // that is how it is ended
		}
		if err != nil {
			return err
		}
		line := struct {
			ID      string         `json:"id,omitzero"`
			AgentID string         `json:"agent_id,omitzero"`
			Seq     uint64         `json:"seq,omitzero"`
			Event   jsontext.Value `json:"event"`
		}{Seq: event.Seq, Event: event.Data}
		if event.ID != "" && event.Seq == 0 {
			line.ID = event.ID
			var of api.AgentEvent
			if err := json.Unmarshal(event.Data, &of); err == nil && of.Event.Kind() == '{' {
				line.AgentID, line.Seq, line.Event = of.AgentID, of.Seq, of.Event
			}
		}
		if err := a.printJSON(line); err != nil {
			return err
		}
	}
	return nil
}
