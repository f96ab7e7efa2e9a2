package cli

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/go-json-experiment/json"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/client"
	"nexus.internal/protocol"
)

// Printf writes to stdout what a terminal acts on in nothing, whoever wrote the
// arguments, each of which stays on its line.
func (a *App) Printf(format string, args ...any) error { return a.printf(format, args...) }

// Eprintf is Printf to stderr.
func (a *App) Eprintf(format string, args ...any) error {
	_, err := fmt.Fprintf(a.errs, format, foreign(args)...)
	return err
}

// printf writes to stdout. Each argument stays on its line, but for a block.
func (a *App) printf(format string, args ...any) error {
	_, err := fmt.Fprintf(a.out, format, foreign(args)...)
	return err
}

// table writes rows to stdout, in columns.
func (a *App) table(rows [][]string) error {
	tab := tabwriter.NewWriter(a.out, 0, 8, 2, ' ', 0)
	for _, row := range rows {
		for i, cell := range row {
			row[i] = line(cell)
		}
		fmt.Fprintln(tab, strings.TrimRight(strings.Join(row, "\t"), "\t")) // a cell before an empty last one is not filled up
	}
	return tab.Flush()
}

// say is printf for people: it is silent with --json.
func (a *App) say(format string, args ...any) error {
	if a.json {
		return nil
	}
	return a.printf(format, args...)
}

// printJSON writes one value on one line.
func (a *App) printJSON(value any) error {
	line, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("print JSON: %w", err)
	}
	_, err = a.out.Write(append(line, '\n'))
	return err
}

// PrintJSON writes one value on one line of stdout.
func (a *App) PrintJSON(value any) error { return a.printJSON(value) }

// JSON reports whether --json was given.
func (a *App) JSON() bool { return a.json }

// absolute makes a path given on the command line one that the server can use.
func absolute(path *string) error {
	if path == nil || *path == "" {
		return nil
	}
	abs, err := filepath.Abs(*path)
	*path = abs
	return err
}

func (a *App) list(ctx context.Context, c *client.Client, _ []string) error {
	agents, err := client.Do(ctx, c, "", api.ListAgents, api.None{})
	switch {
	case err != nil:
		return err
	case a.json:
		return a.printJSON(agents)
	case len(agents.Agents) == 0:
		return a.printf("no agents\n")
	}
	rows := [][]string{{"AGENT", "STATE", "PID", "MESSAGES", "RESTARTS", "MODEL", "CWD"}}
	for _, agent := range agents.Agents {
		pid := "-"
		if agent.PID != nil {
			pid = strconv.Itoa(*agent.PID)
		}
		rows = append(rows, []string{
			agent.AgentID, agent.State, pid, fmt.Sprint(agent.MessageCount), fmt.Sprint(agent.Restarts),
			cmp.Or(protocol.Value(agent.Model), "-"), cmp.Or(protocol.Value(agent.Cwd), "-"),
		})
	}
	return a.table(rows)
}

// Counted is a number of things: "1 session", "2 sessions".
func Counted[N int | int64 | uint64](n N, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
}
