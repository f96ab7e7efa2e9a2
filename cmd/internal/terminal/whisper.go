package terminal

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
	return nil, findAgent(t, args[0], nil, func(agent string, created bool) work {
		return func() any {
			t.chat.attach(agent, position{})
			return whispers{agent: agent, created: created, info: t.chat.about(agent)}
		}
	})
}

// whispers says that an agent is whispered to from now on.
type whispers arrived

func beginWhisper(t *talk, to whispers) []string {
	t.aside = &aside{agent: t.agent, shown: t.shown, state: t.state, incarnation: t.incarnation, kind: t.kind, update: t.update, used: t.used}
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
	t.state, t.incarnation, t.kind, t.update, t.used = a.state, a.incarnation, a.kind, a.update, a.used
	if a.gone {
		return append(lines, t.look().note(a.agent+" was removed")), func() any { return lobby(nil) }
	}
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
