package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/spf13/pflag"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/client"
	"nexus.internal/protocol"
	"nexus.internal/protocol/safefile"
)

// The verbs of this file show something of an agent, and change it where there is an argument more.

// shows is a verb that calls a method of the agent args[0] and tells of the result.
func shows[P, R any](m api.Def[P, R], p P, tell func(a *App, r R) error) action {
	return func(ctx context.Context, a *App, c *client.Client, args []string) error {
		return show(ctx, a, c, args[0], m, p, tell)
	}
}

func show[P, R any](ctx context.Context, a *App, c *client.Client, agent string, m api.Def[P, R], p P, tell func(a *App, r R) error) error {
	result, err := client.Do(ctx, c, agent, m, p)
	switch {
	case err != nil:
		return err
	case a.Structured():
		return a.PrintValue(result)
	}
	return tell(a, result)
}

// compact is the verb that compacts a conversation.
type compact struct{ force bool }

func (v *compact) flags(f *pflag.FlagSet) {
	f.BoolVar(&v.force, "force", false, "keep only the last turn, and take a summary that is no shorter")
}

func (v *compact) run(ctx context.Context, a *App, c *client.Client, args []string) error {
	return show(ctx, a, c, args[0], api.Compact, api.CompactParams{Force: &v.force}, func(a *App, r api.CompactResult) error {
		if !r.Compacted {
			return a.Printf("not compacted: %s\n", r.Reason)
		}
		return a.Printf("compacted by the %s: about %d tokens, %d before\n", r.By, r.TokensAfter, r.TokensBefore)
	})
}

// undo is the verb that takes a turn back.
type undo struct{ files bool }

func (v *undo) flags(f *pflag.FlagSet) {
	f.BoolVar(&v.files, "files", false, "take back what its tools changed in files, too")
}

func (v *undo) run(ctx context.Context, a *App, c *client.Client, args []string) error {
	result, err := client.Do(ctx, c, args[0], api.Undo, api.UndoParams{Files: &v.files})
	if err != nil {
		return err
	}
	missing := fmt.Errorf("nothing to undo: %s", result.Reason)
	if a.Structured() || !result.Undone {
		return a.ended(result, result.Undone, missing, "")
	}
	if err := a.Printf("took the last turn back: %s, %d left\n", Counted(result.Removed, "message"), result.MessageCount); err != nil || result.Files == nil {
		return err
	}
	for _, path := range result.Files.Restored {
		if err := a.Printf("as before: %s\n", path); err != nil {
			return err
		}
	}
	for _, left := range result.Files.Left {
		if err := a.Printf("left %s: %s\n", left.Path, left.Reason); err != nil {
			return err
		}
	}
	if len(result.Files.NotUndone) > 0 {
		return a.Printf("not taken back: what %s changed\n", strings.Join(result.Files.NotUndone, ", "))
	}
	return nil
}

func model(ctx context.Context, a *App, c *client.Client, args []string) error {
	if len(args) == 1 {
		return show(ctx, a, c, args[0], api.GetModel, api.None{}, func(a *App, r api.GetModelResult) error {
			return a.Printf("%s/%s\n", r.Provider, r.Model)
		})
	}
	return show(ctx, a, c, args[0], api.SetModel, api.SetModelParams{Model: args[1]}, func(a *App, r api.SetModelResult) error {
		return a.Printf("%s from the next turn on\n", r.Model)
	})
}

func cwd(ctx context.Context, a *App, c *client.Client, args []string) error {
	if len(args) == 1 {
		return show(ctx, a, c, args[0], api.GetPermissions, api.None{}, func(a *App, r api.GetPermissionsResult) error {
			return a.Printf("%s\n", r.Policy.Cwd)
		})
	}
	dir, err := safefile.ExpandTilde(args[1])
	if err == nil {
		dir, err = filepath.Abs(dir)
	}
	if err != nil {
		return Usage("DIR: %v", err)
	}
	return show(ctx, a, c, args[0], api.SetCwd, api.SetCwdParams{Cwd: dir}, func(a *App, r api.SetCwdResult) error {
		return a.Printf("%s from the next turn on\n", r.Cwd)
	})
}

// prompt is the verb for the system prompt.
type prompt struct{ reset bool }

func (v *prompt) flags(f *pflag.FlagSet) {
	f.BoolVar(&v.reset, "reset", false, "go back to the prompt of NEXUS.md and the like")
}

func (v *prompt) check(_ *pflag.FlagSet, args []string) error {
	if v.reset && len(args) > 1 {
		return Usage("FILE and --reset exclude each other")
	}
	return nil
}

func (v *prompt) run(ctx context.Context, a *App, c *client.Client, args []string) error {
	if len(args) == 1 && !v.reset {
		return show(ctx, a, c, args[0], api.GetSystemPrompt, api.None{}, func(a *App, r api.GetSystemPromptResult) error {
			_, err := a.out.Write([]byte(strings.TrimRight(r.SystemPrompt+"\n\n"+r.Environment, "\n") + "\n"))
			return err
		})
	}
	p := api.SetSystemPromptParams{SystemPrompt: []byte("null")}
	if !v.reset {
		text, err := readText(a, args[1])
		if err == nil {
			p.SystemPrompt, err = json.Marshal(text)
		}
		if err != nil {
			return err
		}
	}
	return show(ctx, a, c, args[0], api.SetSystemPrompt, p, func(a *App, _ api.UpdatedResult) error {
		return a.Printf("from the next turn on\n")
	})
}

// errNoStdin refuses - in a talk, whose stdin is what is typed.
var errNoStdin = Usage("a talk has no stdin: name a file")

// readText reads a file with a prompt, or stdin for "-".
func readText(a *App, path string) (string, error) {
	if path == "-" {
		if a.Slash {
			return "", errNoStdin
		}
		return readStdin(a.Stdin, "prompt")
	}
	data, err := safefile.ReadNamed(path, maxStdin)
	if err == nil && !utf8.Valid(data) {
		err = fmt.Errorf("read %s: it is not UTF-8", path)
	}
	return string(data), err
}

// readStdin reads a text of that name from stdin. It is an error if that is empty, not UTF-8 or too long.
func readStdin(stdin io.Reader, name string) (string, error) {
	text, err := io.ReadAll(io.LimitReader(stdin, maxStdin+1))
	switch {
	case err != nil:
		return "", fmt.Errorf("read the %s from stdin: %w", name, err)
	case len(text) > maxStdin:
		return "", fmt.Errorf("the %s on stdin is longer than %d bytes", name, maxStdin)
	case !utf8.Valid(text):
		return "", fmt.Errorf("the %s on stdin is not UTF-8", name)
	case strings.TrimSpace(string(text)) == "":
		return "", fmt.Errorf("the %s on stdin is empty", name)
	}
	return string(text), nil
}

func permissions(ctx context.Context, a *App, c *client.Client, args []string) error {
	if len(args) > 1 {
		return show(ctx, a, c, args[0], api.SetPermissions, api.SetPermissionsParams{Preset: &args[1]}, func(a *App, r api.SetPermissionsResult) error {
			if r.Preset != args[1] { // what one of the configuration comes to
				return a.Printf("%s (%s) at once\n", args[1], r.Preset)
			}
			return a.Printf("%s at once\n", r.Preset)
		})
	}
	return show(ctx, a, c, args[0], api.GetPermissions, api.None{}, func(a *App, r api.GetPermissionsResult) error {
		rows := [][]string{{"preset", r.Preset}, {"cwd", r.Policy.Cwd}}
		for _, list := range []struct {
			name  string
			items *[]string
		}{
			{"allowed paths", r.Policy.AllowedPaths},
			{"write paths", r.Policy.WritePaths},
			{"blocked paths", &r.Policy.BlockedPaths},
			{"network", r.Policy.Network},
			{"disabled tools", &r.DisabledTools},
		} {
			switch {
			case list.items == nil:
			case len(*list.items) > 0:
				rows = append(rows, []string{list.name, strings.Join(*list.items, ", ")})
			case list.name == "write paths" || list.name == "network":
				rows = append(rows, []string{list.name, "none"})
			}
		}
		for _, name := range slices.Sorted(maps.Keys(r.Policy.Tools)) {
			rows = append(rows, []string{"rule", ruleText(name, r.Policy.Tools[name])})
		}
		for _, one := range r.Allowances {
			what := append(append([]string{string(one.Action)}, one.Programs...), one.Hosts...)
			switch {
			case one.Alone:
				what = append(what, "only "+one.Dir)
			case one.Dir != "":
				what = append(what, "in "+one.Dir)
			}
			rows = append(rows, []string{"allowed", one.Tool + " " + strings.Join(what, " ")})
		}
		if n := len(r.Pending); n > 0 {
			rows = append(rows, []string{"waiting", fmt.Sprintf("%s for an approval: approvals lists them", Counted(n, "call"))})
		}
		return a.table(rows)
	})
}

// ruleText says in one line how a tool deviates from the preset.
func ruleText(tool string, rule protocol.ToolRule) string {
	var what []string
	if rule.Mode != "" {
		what = append(what, rule.Mode)
	}
	if rule.AllowedPaths != nil {
		what = append(what, "only in "+cmp.Or(strings.Join(rule.AllowedPaths, ", "), "no directory"))
	}
	if len(rule.BlockedPaths) > 0 {
		what = append(what, "not in "+strings.Join(rule.BlockedPaths, ", "))
	}
	return tool + " " + strings.Join(what, "; ")
}

func tellModels(a *App, r api.ListModelsResult) error {
	rows := [][]string{{"MODEL", "WINDOW", "IN", "OUT"}} // tokens; US dollars for a million
	for _, m := range r.Models {
		window, in, out := "-", "-", "-"
		if m.ContextWindow > 0 {
			window = strconv.FormatUint(m.ContextWindow, 10)
		}
		if m.Price != nil {
			in, out = fmt.Sprintf("$%g", m.Price.Input), fmt.Sprintf("$%g", m.Price.Output)
		}
		rows = append(rows, []string{m.Provider + "/" + m.ModelID, window, in, out})
	}
	err := a.Listing(rows)
	for _, note := range r.Notes {
		a.note("%s", note)
	}
	return err
}

func tellTools(a *App, r api.ListToolsResult) error {
	rows := [][]string{{"TOOL", "DOES"}}
	for _, t := range r.Tools {
		summary, _, _ := strings.Cut(t.Description, ". ")
		rows = append(rows, []string{t.Name, firstOf(summary, 100)})
	}
	return a.Listing(rows)
}

func tellJobs(a *App, r protocol.JobList) error {
	if len(r.Jobs) == 0 {
		return a.Printf("no jobs\n")
	}
	rows := [][]string{{"JOB", "STATE", "STARTED", "OUTPUT", "COMMAND"}}
	for _, j := range r.Jobs {
		state := "runs"
		if !j.Running {
			state = firstOf(j.Result, 40)
		}
		rows = append(rows, []string{j.JobID, state, j.StartedAt.Local().Format(time.DateTime), fmt.Sprint(j.OutputBytes), firstOf(j.Command, 100)})
	}
	return a.Listing(rows)
}

// firstOf is the first line of a text, up to so many characters of it.
func firstOf(text string, most int) string {
	line, _, _ := strings.Cut(text, "\n")
	if runes := []rune(line); len(runes) > most {
		return string(runes[:most]) + "…"
	}
	return line
}

func tellServers(a *App, r api.MCPListServersResult) error {
	if len(r.Servers) == 0 {
		return a.Printf("no MCP servers\n")
	}
	rows := [][]string{{"SERVER", "STATE", "TOOLS", "ERROR"}}
	for _, s := range r.Servers {
		rows = append(rows, []string{s.Name, string(s.State), strconv.FormatUint(s.Tools, 10), s.Error})
	}
	return a.Listing(rows)
}

// mcp is the verb for the MCP servers of an agent.
type mcp struct{ end bool }

const mcpHelp = "List the agent's MCP servers, or start SERVER, or end it with --end. One that the project names starts only with its TARGET, the command line or the address that it is to be allowed with."

func (v *mcp) flags(f *pflag.FlagSet) {
	f.BoolVar(&v.end, "end", false, "end SERVER until it is started again")
}

func (v *mcp) check(_ *pflag.FlagSet, args []string) error {
	if v.end && len(args) != 2 {
		return Usage("--end takes AGENT and SERVER")
	}
	return nil
}

func (v *mcp) run(ctx context.Context, a *App, c *client.Client, args []string) error {
	switch {
	case len(args) == 1:
		return show(ctx, a, c, args[0], api.MCPListServers, api.None{}, tellServers)
	case v.end:
		return show(ctx, a, c, args[0], api.MCPDisconnect, api.MCPServerParams{Server: args[1]}, func(a *App, r api.MCPDisconnectResult) error {
			return a.Printf("ended %s\n", r.Server.Name)
		})
	}
	p := api.MCPConnectParams{Server: args[1]}
	if len(args) > 2 {
		p.Target = &args[2]
	}
	return show(ctx, a, c, args[0], api.MCPConnect, p, func(a *App, r api.MCPConnectResult) error {
		return a.Printf("started %s: %s\n", r.Server.Name, Counted(r.Server.Tools, "tool"))
	})
}
