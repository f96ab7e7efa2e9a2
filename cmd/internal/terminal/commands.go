package terminal

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/client"
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
	"destroy": standin, "keys": named, "list": named, "mcp": standing, "messages": standin, "model": standing, "permissions": standing,
	"plan": named, "prompt": standing, "rename": named, "sessions": named, "shutdown": named, "status": standin, "stop": standin, "tools": standing, "undo": standing,
}

// command is one of the terminal's own.
type command struct {
	use, help string
	do        doing
}

// doing carries out a command with its arguments: it returns lines to show, and work to do.
type doing func(t *talk, args []string) ([]string, work)

// commands are the terminal's own, by their names. They are a function as /help lists them.
func commands() map[string]command {
	return map[string]command{
		"agent":   {"[NAME] [--trusted|--sandboxed|--yolo]", "Describe the current agent, or go to another one", toAgent},
		"load":    {"SESSION", "Go to the agent of a saved session", toAgent},
		"whisper": {"NAME", "Talk to another agent, until /over", beginWhispering},
		"over":    {"", "Return from /whisper", whisperOver},
		"save":    {"[NAME]", "Save a temporary agent under a name, or a copy of a named one", saveAs},
		"send":    {"AGENT MESSAGE", "Send a message to another agent, and show its answer", sendTo},
		"cancel":  {"[AGENT REQUEST_ID]", "Cancel the running turn", cancelTurn},
		"events":  {"[N]", "List the current agent's last events, 20 of them", lastEvents},
		"unfold":  {"", "Show the last call whole whose result was cut; again, the one before it", func(t *talk, _ []string) ([]string, work) { return t.shown.unfold(), nil }},
		"new":     {"", "Discard the conversation and begin another", anew},
		"fork":    {"NAME", "Go on with a copy of the conversation, as another agent", forkTo},
		"clear":   {"", "Clear the screen", func(*talk, []string) ([]string, work) { return nil, func() any { return cleared{} } }},
		"help":    {"[COMMAND]", "List the commands", showHelp},
		"quit":    {"", "Leave", func(*talk, []string) ([]string, work) { return nil, func() any { return ended(nil) } }},
	}
}

// cleared asks for an empty screen.
type cleared struct{}

// command carries out a line that begins with a slash.
func (t *talk) command(text string) ([]string, work) {
	words := strings.Fields(strings.TrimPrefix(text, "/"))
	if len(words) == 0 {
		return showHelp(t, nil)
	}
	name, args := words[0], words[1:]
	if own, ok := commands()[name]; ok {
		if name == "send" && len(args) > 1 {
			_, rest, _ := strings.Cut(text, args[0])
			args = []string{args[0], strings.TrimSpace(rest)}
		}
		return own.do(t, args)
	}
	how, ok := verbs[name]
	if !ok {
		return []string{t.look().problem("no command /" + cli.Harmless(name, true) + suggestion(name))}, nil
	}
	return runVerb(t, how, name, args)
}

// suggestion is the end of a sentence that names a command that begins alike.
func suggestion(name string) string {
	for _, other := range names() {
		if len(name) > 1 && (strings.HasPrefix(other, name[:2]) || strings.HasPrefix(name, other)) {
			return ": is /" + other + " meant? /help lists them"
		}
	}
	return ": /help lists them"
}

// names are those of all commands, sorted.
func names() (all []string) {
	for name := range commands() {
		all = append(all, name)
	}
	for name := range verbs {
		all = append(all, name)
	}
	slices.Sort(all)
	return all
}

// runVerb carries out a verb of nexus-rpc.
func runVerb(t *talk, how subject, name string, args []string) ([]string, work) {
	plain := slices.IndexFunc(args, func(arg string) bool { return !strings.HasPrefix(arg, "-") })
	if how == standing || how == standin && plain < 0 {
		if t.agent == "" {
			return []string{t.look().problem("no agent is talked to: name one")}, nil
		}
		args = append([]string{t.agent}, args...)
	}
	current := t.agent
	moves := name == "rename" && len(args) == 2 && args[0] == current || name == "destroy" && len(args) > 0 && args[0] == current
	do := func() any {
		lines, status := t.run(append([]string{name}, args...)...)
		switch {
		case status != cli.ExitDone:
			return stays(lines)
		case name == "shutdown":
			return ended(lines)
		case name == "destroy" && args[0] == current:
			return lobby(lines)
		case name == "rename" && len(args) == 2 && args[0] == current:
			t.chat.attach(args[1])
			return renamed{agent: args[1], lines: lines, info: t.infoOf(args[1])}
		}
		return said(lines)
	}
	if moves {
		t.moving = current
	}
	switch {
	case name == "destroy" && args[0] == current:
		t.question = &question{text: "destroy " + current + ", which you talk to? a named one's session stays saved; y/n", yes: do}
	case name == "shutdown":
		t.question = &question{text: "end the server, for all who use it? y/n", yes: do}
	default:
		return nil, do
	}
	if t.o.Plain {
		return []string{t.question.text}, nil
	}
	return nil, nil
}

// run runs a command line of nexus-rpc, and returns what it says.
func (t *talk) run(args ...string) (lines []string, status int) {
	var said bytes.Buffer
	app := cli.New(cli.Options{
		Name: "nexus-rpc", Version: t.o.Version, Environ: t.o.Environ, Stdin: strings.NewReader(""), Stdout: &said, Stderr: &said,
	})
	status = app.Run(t.ctx, args)
	text := strings.TrimRight(said.String(), "\n")
	if status != cli.ExitDone {
		return t.look().styled(red, text), status
	}
	return t.look().wrap(text, ""), status
}

// toAgent goes to an agent: one that runs, a saved one, or a new one.
func toAgent(t *talk, args []string) ([]string, work) {
	p := api.CreateAgentParams{Cwd: nil, DefaultCwd: &t.o.Cwd, Approvals: new("ask")}
	name := ""
	for _, arg := range args {
		switch arg {
		case "--trusted", "--sandboxed", "--yolo":
			p.Preset = new(strings.TrimPrefix(arg, "--"))
		default:
			if name != "" || strings.HasPrefix(arg, "-") {
				return []string{t.look().problem("usage: /agent [NAME] [--trusted|--sandboxed|--yolo]")}, nil
			}
			name = arg
		}
	}
	if name == "" {
		return runVerb(t, standing, "status", nil)
	}
	return nil, findAgent(t, name, p, t.begin)
}

// findAgent goes on with an agent that runs; else it asks whether the saved one, or a new one, is meant.
func findAgent(t *talk, name string, p api.CreateAgentParams, then func(agent string, created bool) work) work {
	p.AgentID = &name
	return func() any {
		if err := api.CheckAgentID(name); err != nil {
			return said{t.look().problem(cli.Harmless(err.Error(), true))}
		}
		all, err := client.Do(t.ctx, t.c, "", api.ListAgents, api.None{})
		if err != nil {
			return said{t.look().problem(cli.Harmless(err.Error(), true))}
		}
		if slices.ContainsFunc(all.Agents, func(a api.AgentInfo) bool { return a.AgentID == name }) {
			return then(name, false)()
		}
		text := fmt.Sprintf("there is no agent %s: create it? y/n", name)
		if saved, err := client.Do(t.ctx, t.c, "", api.ListSessions, api.ListSessionsParams{Limit: new(uint64(api.MaxSessions))}); err == nil {
			for _, s := range saved.Sessions {
				if s.Name == name {
					text = fmt.Sprintf("%s is saved (%s): restore it? y/n", name, cli.Counted(s.MessageCount, "message"))
				}
			}
		}
		return asks{text: text, yes: func() any {
			if _, err := client.Do(t.ctx, t.c, "", api.CreateAgent, p); err != nil {
				return said{t.look().problem(cli.Harmless(err.Error(), true))}
			}
			return then(name, false)()
		}}
	}
}

// beginWhispering talks to another agent for a while. What the current one does meanwhile is shown
// afterwards, and it hears nothing of it.
func beginWhispering(t *talk, args []string) ([]string, work) {
	switch {
	case len(args) != 1:
		return []string{t.look().problem("usage: /whisper NAME")}, nil
	case t.agent == "" || t.aside != nil:
		return []string{t.look().problem("/whisper is for a talk to one agent, beside it: /over returns from another one")}, nil
	case args[0] == t.agent:
		return []string{t.look().problem("you talk to " + t.agent + " already")}, nil
	}
	p := api.CreateAgentParams{DefaultCwd: &t.o.Cwd, Approvals: new("ask")}
	return nil, findAgent(t, args[0], p, func(agent string, _ bool) work {
		return func() any {
			t.chat.attach(agent)
			return whispers{agent: agent, info: t.infoOf(agent)}
		}
	})
}

// whispers says that an agent is whispered to from now on.
type whispers arrived

func beginWhisper(t *talk, to whispers) []string {
	t.aside = &aside{agent: t.agent, shown: t.shown, state: t.state, incarnation: t.incarnation, update: t.update}
	lines := []string{t.look().style(cyan, "┌── whisper mode: "+to.agent+" ── /over to return ──┐")}
	t.agent, t.shown = "", transcript{look: t.look(), now: t.shown.now}
	return append(lines, t.arrive(arrived(to))...)
}

// whisperOver returns from whisper, and shows what has happened meanwhile.
func whisperOver(t *talk, _ []string) ([]string, work) {
	a := t.aside
	if a == nil {
		return []string{t.look().problem("/over is for whisper mode")}, nil
	}
	lines := t.shown.flush()
	t.chat.detach(t.agent)
	lines = append(lines, t.look().style(cyan, "└── returned to "+a.agent+" ──┘"))
	t.agent, t.shown, t.aside = a.agent, a.shown, nil
	t.shown.look = t.look() // the terminal may have another width by now
	t.state, t.incarnation, t.update = a.state, a.incarnation, a.update
	var all []work
	for _, event := range a.events {
		more, todo := t.happened(event)
		lines = append(lines, more...)
		if todo != nil {
			all = append(all, todo)
		}
	}
	if len(all) == 0 {
		return lines, nil
	}
	return lines, all[len(all)-1]
}

// saveAs makes a temporary agent a named one, or a copy of a named one.
func saveAs(t *talk, args []string) ([]string, work) {
	if t.agent == "" {
		return []string{t.look().problem("no agent is talked to")}, nil
	}
	agent := t.agent
	as := func(name string) work {
		t.moving = agent
		return func() any {
			p := api.SaveSessionParams{AgentID: agent}
			if name != "" {
				p.SessionName = &name
			}
			saved, err := client.Do(t.ctx, t.c, "", api.SaveSession, p)
			switch {
			case err != nil:
				return stays{t.look().problem(cli.Harmless(err.Error(), true))}
			case saved.AgentID != agent:
				t.chat.attach(saved.AgentID)
				return renamed{agent: saved.AgentID, info: t.infoOf(saved.AgentID), lines: []string{t.look().note("saved as " + saved.AgentID + ", which it is called now")}}
			}
			return stays{t.look().note("saved " + saved.SessionName)}
		}
	}
	if len(args) == 0 && api.IsTemp(agent) {
		t.question = &question{text: "save it as:", answer: func(name string) work {
			if name == "" {
				return nil
			}
			return as(name)
		}}
		if t.o.Plain {
			return []string{t.question.text}, nil
		}
		return nil, nil
	}
	return nil, as(strings.Join(args, " "))
}

func sendTo(t *talk, args []string) ([]string, work) {
	if len(args) != 2 || args[1] == "" {
		return []string{t.look().problem("usage: /send AGENT MESSAGE")}, nil
	}
	return nil, func() any {
		lines, _ := t.run("send", args[0], "--", args[1])
		return said(append([]string{t.look().style(bold, args[0]+":")}, lines...))
	}
}

func cancelTurn(t *talk, args []string) ([]string, work) {
	if len(args) > 0 {
		return runVerb(t, named, "cancel", args)
	}
	if more, ok := t.interrupt(); ok {
		return nil, more
	}
	return []string{t.look().note("nothing runs")}, nil
}

func anew(t *talk, _ []string) ([]string, work) {
	agent := t.agent
	return nil, func() any {
		if _, err := client.Do(t.ctx, t.c, agent, api.NewSession, api.None{}); err != nil {
			return said{t.look().problem(cli.Harmless(err.Error(), true))}
		}
		return said{t.look().note("a new conversation begins")}
	}
}

func forkTo(t *talk, args []string) ([]string, work) {
	if len(args) != 1 {
		return []string{t.look().problem("usage: /fork NAME")}, nil
	}
	agent := t.agent
	return nil, func() any {
		forked, err := client.Do(t.ctx, t.c, "", api.Fork, api.ForkParams{AgentID: agent, NewAgentID: args[0]})
		if err != nil {
			return said{t.look().problem(cli.Harmless(err.Error(), true))}
		}
		t.chat.attach(forked.AgentID)
		return arrived{agent: forked.AgentID, info: t.infoOf(forked.AgentID), lines: []string{t.look().note(fmt.Sprintf("%s goes on from here (%s)", forked.AgentID, cli.Counted(forked.MessageCount, "message")))}}
	}
}

// showHelp lists the commands, or shows the help of one.
func showHelp(t *talk, args []string) ([]string, work) {
	if len(args) == 1 {
		name := strings.TrimPrefix(args[0], "/")
		if own, ok := commands()[name]; ok {
			return t.look().wrap("/"+strings.TrimRight(name+" "+own.use, " ")+"\n"+own.help, ""), nil
		}
		if _, ok := verbs[name]; ok {
			return nil, func() any {
				lines, _ := t.run(name, "--help")
				return said(lines)
			}
		}
	}
	var lines []string
	if !t.o.Plain {
		lines = t.look().wrap("Enter sends, or queues while the agent is busy; Ctrl-S sends at once and aborts the running turn; Esc cancels it.", "")
	}
	own, all := commands(), cli.Verbs()
	for _, name := range names() {
		use, help := own[name].use, own[name].help
		if help == "" {
			use, help = all[name].Args, all[name].Summary
			switch verbs[name] {
			case named:
			case standing:
				use = strings.TrimSpace(strings.TrimPrefix(use, "AGENT"))
			case standin:
				use = "[" + strings.Trim(use, "[]") + "]"
			}
		}
		lines = append(lines, t.look().wrap(strings.TrimRight("/"+name+" "+use, " ")+": "+help, "  ")...)
	}
	return append(lines, "@PATH in a message brings the file with it. // sends a message that begins with a slash."), nil
}
