package terminal

import (
	"fmt"
	"slices"
	"strings"
	"unicode"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/client"
	"nexus.internal/cmd/internal/cli"
	"nexus.internal/protocol/shellword"
	"nexus.internal/protocol/suggest"
)

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
		"load":    {"SESSION", "Go to the agent of a saved session", toSession},
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
		"quit":    {"", "Leave", func(t *talk, _ []string) ([]string, work) { return t.handle(ended(nil)) }}, // at once: what is typed behind it is no command
	}
}

// cleared asks for an empty screen.
type cleared struct{}

// command carries out a line that begins with a slash.
func (t *talk) command(text string) ([]string, work) {
	name, rest := firstWord(strings.TrimPrefix(text, "/"))
	if name == "" {
		return showHelp(t, nil)
	}
	own, isOwn := commands()[name]
	how, isVerb := verbs[name]
	if !isOwn && !isVerb {
		return unknown(t.look(), name), nil
	}
	if name == "send" { // the message is as it was typed
		agent, message := firstWord(rest)
		return own.do(t, []string{agent, message})
	}
	words, err := shellword.Read(rest)
	if err != nil {
		return []string{t.look().problem(fmt.Sprintf(`/%s: %v: \' and \" are quotes that mean nothing`, name, err))}, nil
	}
	args := make([]string, 0, len(words))
	for _, word := range words {
		args = append(args, word.Text)
	}
	switch {
	case isVerb:
		return runVerb(t, how, name, args)
	case own.use == "" && len(args) > 0:
		return []string{t.look().problem("usage: /" + name)}, nil
	}
	return own.do(t, args)
}

// firstWord is what stands before the first white space of a text, and what stands behind it.
func firstWord(text string) (word, rest string) {
	text = strings.TrimSpace(text)
	end := strings.IndexFunc(text, unicode.IsSpace)
	if end < 0 {
		return text, ""
	}
	return text[:end], strings.TrimSpace(text[end:])
}

// unknown says that there is no such command.
func unknown(l look, name string) []string {
	return []string{l.problem("no command /" + cli.Harmless(name, true) + suggestion(name))}
}

// suggestion is the end of a sentence that names the command that was probably meant.
func suggestion(name string) string {
	if near := suggest.Nearest(name, names()); near != "" {
		return ": is /" + near + " meant? /help lists them"
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
				t.chat.attach(saved.AgentID, position{})
				return renamed{agent: saved.AgentID, info: t.chat.about(saved.AgentID), lines: []string{t.look().note("saved as " + saved.AgentID + ", which it is called now")}}
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
		t.chat.meet(args[0]) // also if it comes back for this, and there is no answer
		lines, status := t.run("send", args[0], "--", args[1])
		if status == cli.ExitDone {
			lines = append([]string{t.look().style(bold, args[0]+":")}, lines...)
		}
		return said(lines)
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
		t.chat.attach(forked.AgentID, position{})
		return arrived{agent: forked.AgentID, info: t.chat.about(forked.AgentID), lines: []string{t.look().note(fmt.Sprintf("%s goes on from here (%s)", forked.AgentID, cli.Counted(forked.MessageCount, "message")))}}
	}
}

// showHelp lists the commands, or shows the help of one.
func showHelp(t *talk, args []string) ([]string, work) {
	if len(args) > 1 {
		return []string{t.look().problem("usage: /help [COMMAND]")}, nil
	}
	if len(args) == 1 {
		name := strings.TrimPrefix(args[0], "/")
		if own, ok := commands()[name]; ok {
			return t.look().wrap("/"+strings.TrimRight(name+" "+own.use, " ")+"\n"+own.help, ""), nil
		}
		if _, ok := verbs[name]; ok {
			return verbHelp(t.look(), name), nil
		}
		return unknown(t.look(), name), nil
	}
	var lines []string
	if !t.o.Plain {
		lines = t.look().wrap("Enter sends, or queues while the agent is busy; Ctrl-S sends at once and aborts the running turn; Esc cancels it. Ctrl-C empties the input, or without any cancels the turn; the second Ctrl-C leaves.", "")
	}
	own := commands()
	for _, name := range names() {
		use, help := strings.TrimRight("/"+name+" "+own[name].use, " "), own[name].help
		if help == "" {
			use, help = usageOf(name), summaryOf(name)
		}
		lines = append(lines, t.look().wrap(use+": "+help, "  ")...)
	}
	return append(lines, t.look().wrap("@PATH in a message brings the file with it. '…', \"…\" and \\ keep white space in a word of a command, or in PATH. "+
		"// sends a message that begins with a slash. -o json, yaml or name behind a command that lists or shows something prints it so.", "")...), nil
}
