package terminal

import (
	"bytes"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"nexus.internal/cmd/internal/cli"
)

// subject says what a verb's command does with the current agent.
type subject int

const (
	named    subject = iota // nothing: the arguments are those of the verb
	standing                // it is the verb's AGENT
	standin                 // it is the verb's AGENT where none is given
)

// verbs are the commands that are verbs of nexus-rpc, with what the current agent is to them.
var verbs = map[string]subject{
	"allow": named, "approvals": standin, "clone": named, "compact": standing, "create": named, "cwd": standing, "delete": named, "deny": named,
	"destroy": standin, "jobs": standing, "keys": named, "list": named, "mcp": standing, "messages": standin, "model": standing, "permissions": standing,
	"plan": named, "prompt": standing, "rename": named, "sessions": named, "shutdown": named, "status": standin, "stop": standin, "tools": standing, "undo": standing,
}

// runVerb carries out a verb of nexus-rpc.
func runVerb(t *talk, how subject, name string, args []string) ([]string, work) {
	own := args // without what follows --, such as a program with flags of its own
	if end := slices.Index(args, "--"); end >= 0 {
		own = args[:end]
	}
	if slices.Contains(own, "--help") || slices.Contains(own, "-h") {
		return verbHelp(t.look(), name), nil
	}
	flags, wrong := cli.ParseVerb(name, args)
	plain := flags.Args() // without flags and their values
	if how == standing || how == standin && len(plain) == 0 && wrong == nil {
		if t.agent == "" {
			return []string{t.look().problem("no agent is talked to: name one")}, nil
		}
		args, plain = append([]string{t.agent}, args...), append([]string{t.agent}, plain...)
	}
	if name == "create" && !flags.Changed("approvals") {
		args = append([]string{"--approvals", "ask"}, args...) // there is somebody to ask
	}
	current := t.agent
	ends := name == "destroy" && wrong == nil && plain[0] == current
	moves := name == "rename" && wrong == nil && len(plain) == 2 && plain[0] == current
	if most, asks := map[string]int{"shutdown": 0, "destroy": 1}[name]; asks && len(plain) > most {
		return []string{t.look().problem("usage: " + usageOf(name))}, nil
	}
	halts := ""
	if name == "stop" && wrong == nil {
		halts = plain[0]
		halt(t, halts, true)
	}
	do := func() any {
		lines, status := bring(t, name, args, flags, wrong)
		switch {
		case name == "stop":
			return stopped{halts, lines, status == cli.ExitDone}
		case status != cli.ExitDone:
			return stays(lines)
		case name == "shutdown":
			return ended(lines)
		case ends:
			return lobby(lines)
		case moves:
			t.chat.attach(plain[1], position{})
			return renamed{agent: plain[1], lines: lines, info: t.chat.about(plain[1])}
		case len(lines) == 0:
			return said{t.look().note("nothing")}
		}
		return said(lines)
	}
	if ends || moves {
		t.moving = current
	}
	switch {
	case ends:
		t.question = &question{text: "destroy " + current + ", which you talk to? a named one's session stays saved; y/n", yes: do}
	case name == "shutdown" && wrong == nil:
		t.question = &question{text: "end the server, for all who use it? y/n", yes: do}
	default:
		return nil, do
	}
	if t.o.Plain {
		return []string{t.question.text}, nil
	}
	return nil, nil
}

// bring is run for a verb that may bring agents to run: they are of this talk then. flags are the verb's, unless they are wrong.
func bring(t *talk, name string, args []string, flags *pflag.FlagSet, wrong error) (lines []string, status int) {
	args, met, plain := append([]string{name}, args...), &t.chat.met, flags.Args()
	switch {
	case wrong != nil:
	case name == "create":
		if err := met.begin(); err != nil {
			return []string{t.look().problem(cli.Harmless(err.Error(), true))}, cli.ExitRefused
		}
		app, lines, status := runLine(t, args)
		if made := app.Brought; made != nil && !made.Existing {
			met.end(made.AgentID, true, nil)
		} else {
			met.end("", false, errNotBrought)
		}
		return lines, status
	case name == "plan":
		agents, _ := flags.GetStringSlice("agents") // it has that flag
		for _, agent := range agents {
			t.chat.meet(agent)
		}
	case name == "messages" && len(plain) > 0:
		if f, err := t.chat.find(plain[0]); err == nil && f.saved { // of one that runs nothing but its messages is read
			met.add(plain[0], true)
		}
	case name == "clone" && len(plain) == 2:
		if lines, status = t.run(args...); status == cli.ExitDone {
			met.add(plain[1], true)
		}
		return lines, status
	case name == "rename" && len(plain) == 2:
		if lines, status = t.run(args...); status == cli.ExitDone {
			met.rename(plain[0], plain[1])
		}
		return lines, status
	}
	return t.run(args...)
}

// run runs a verb of nexus-rpc, and returns what it says.
func (t *talk) run(args ...string) (lines []string, status int) {
	_, lines, status = runLine(t, args)
	return lines, status
}

// runLine is run, and returns also the command line that has run.
func runLine(t *talk, args []string) (app *cli.App, lines []string, status int) {
	var said bytes.Buffer
	app = cli.New(cli.Options{
		Name: "nexus-rpc", Version: t.o.Version, Environ: t.o.Environ, Stdin: strings.NewReader(""), Stdout: &said, Stderr: &said,
		Slash: true, Columns: int(t.width.Load()), Cwd: t.o.Cwd,
	})
	status = app.Run(t.ctx, args)
	text := strings.TrimRight(said.String(), "\n")
	switch {
	case status == cli.ExitDone:
		return app, t.look().wrap(text, ""), status
	case status == cli.ExitUsage && strings.HasPrefix(text, "usage: "):
		text = "usage: " + usageOf(args[0]) // the current agent is not typed
	}
	return app, []string{t.look().problem(text)}, status
}

// usageOf is how a verb is typed here.
func usageOf(name string) string {
	v := cli.Verbs()[name]
	args := v.Args
	switch verbs[name] {
	case named:
	case standing:
		args = strings.TrimSpace(strings.TrimPrefix(args, "AGENT"))
	case standin:
		args = "[" + strings.Trim(args, "[]") + "]"
	}
	text := strings.TrimRight("/"+name+" "+args, " ")
	if v.Flags != "" {
		text += " [FLAGS]"
	}
	return text
}

// stdinOf is what the help of a verb says of stdin, which a talk has not.
var stdinOf = regexp.MustCompile(` \(- reads stdin\)|; - reads it from stdin`)

func summaryOf(name string) string { return stdinOf.ReplaceAllString(cli.Verbs()[name].Summary, "") }

// verbHelp is the help of a command that is a verb.
func verbHelp(l look, name string) []string {
	v := cli.Verbs()[name]
	text := usageOf(name) + "\n" + summaryOf(name)
	if v.Long != "" {
		text += "\n" + stdinOf.ReplaceAllString(v.Long, "")
	}
	for _, below := range v.Verbs {
		text += "\n/" + name + " " + below
	}
	if v.Flags != "" {
		text += "\n" + v.Flags
	}
	return l.wrap(text, "")
}

// stopped is what came of /stop, for an agent for which nothing that waited is sent since.
type stopped struct {
	agent string
	lines []string
	done  bool
}
