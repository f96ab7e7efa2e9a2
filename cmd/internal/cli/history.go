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
	"github.com/spf13/pflag"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/client"
	"nexus.internal/protocol/suggest"
)

// messages is the verb that prints a conversation.
type messages struct{ offset, limit uint64 }

func (v *messages) flags(f *pflag.FlagSet) {
	f.Uint64Var(&v.offset, "offset", 0, "index of the first message")
	f.Uint64Var(&v.limit, "limit", 0, "at most this many (0: all)")
}

// run puts the pages together.
func (v *messages) run(ctx context.Context, a *App, c *client.Client, args []string) error {
	all := api.GetMessagesResult{Offset: v.offset}
	for whole := false; !whole; {
		had := uint64(len(all.Messages))
		page := api.GetMessagesParams{Offset: new(v.offset + had)}
		if v.limit > 0 {
			page.Limit = new(v.limit - had)
		}
		got, err := client.Do(ctx, c, args[0], api.GetMessages, page)
		if err != nil {
			return err
		}
		all.Messages, all.Total = append(all.Messages, got.Messages...), got.Total
		have := uint64(len(all.Messages))
		whole = have == had || v.offset+have >= got.Total || v.limit > 0 && have >= v.limit
	}
	if a.Structured() {
		return a.PrintValue(all)
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
		if err := a.Printf("%s: %s%s\n", cmp.Or(m.ToolName, string(m.Role)), block(strings.TrimRight(m.Content, "\n")), note); err != nil {
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

// events is the verb that prints events.
type events struct {
	after string
	only  client.Filter
}

func (v *events) flags(f *pflag.FlagSet) {
	f.StringVar(&v.after, "after", "", "seq, or without AGENT id, of the last event seen; 0 selects all stored events (default: only new events)")
	f.StringSliceVar(&v.only.Types, "types", nil, "only events of these types, as in turn_end,error")
	f.BoolVar(&v.only.ToolOutput, "tool-output", false, "also what tools put out while they run, which is not stored")
	f.StringSliceVar(&v.only.Agents, "agents", nil, "only events of these agents, as in a,b")
}

func (v *events) check(f *pflag.FlagSet, args []string) error {
	if len(args) == 1 && f.Changed("agents") {
		return Usage("--agents goes without AGENT")
	}
	return nil
}

func (v *events) run(ctx context.Context, a *App, c *client.Client, args []string) error {
	noteUnknownTypes(a, v.only.Types)
	ctx, release := Interruptible(ctx)
	defer release()
	ctx, stop := untilNoReader(ctx, a.Stdout)
	defer stop()
	if len(args) == 0 {
		return printEvents(ctx, a, c.FollowAll(ctx, v.after, v.only))
	}
	from := uint64(client.FromNow)
	if v.after != "" {
		n, err := strconv.ParseUint(v.after, 10, 64)
		if err != nil {
			return Usage("--after must be the number of an event, not %q", v.after)
		}
		from = n
	}
	return printEvents(ctx, a, c.Follow(ctx, args[0], from, v.only))
}

// noteUnknownTypes tells which types no event has. The server takes them: a child of a
// later version may have them.
func noteUnknownTypes(a *App, types []string) {
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

// printEvents prints events until ctx ends. An event of all agents is printed with its id,
// and what the server says of the stream itself as it says it.
func printEvents(ctx context.Context, a *App, events iter.Seq2[client.Event, error]) error {
	for event, err := range events {
		if errors.Is(context.Cause(ctx), ErrNoReader) {
			return ErrNoReader
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
		if err := a.PrintValue(line); err != nil {
			return err
		}
	}
	return nil
}
