package terminal

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/client"
	"nexus.internal/cmd/internal/cli"
	"nexus.internal/protocol"
	"nexus.internal/protocol/safefile"
)

const (
	// maxTemplate bounds the system prompt of a fresh agent, in bytes.
	maxTemplate = 100 << 10
	// shownSaved is how many saved sessions can be chosen by number.
	shownSaved = 20
)

// start goes where the options say, and says which server that is at. It is work.
func (t *talk) start() any {
	msg := t.whereTo()
	if _, bad := msg.(failed); !bad && t.o.Server != "" {
		t.chat.tell(said{t.look().note(cli.Harmless(t.o.Server, true))})
	}
	return msg
}

// whereTo goes to an agent, to a session, or to the lobby.
func (t *talk) whereTo() any {
	switch o := t.o; {
	case o.Agent != "" && !narrows(o):
		return t.begin(o.Agent, false)()
	case o.Agent != "":
		return t.load(api.LoadSessionParams{SessionName: &o.Agent})()
	case o.Resume:
		return t.load(api.LoadSessionParams{Last: new(true)})()
	case o.Session != "":
		return t.toSaved(o.Session)()
	case o.Fresh:
		return t.fresh()
	}
	return t.enterLobby()
}

// fail says why there is nobody to talk to.
func (t *talk) fail(err error) any {
	return failed(t.look().problem(cli.Harmless(err.Error(), false)))
}

// fresh makes a temporary agent. It is work.
func (t *talk) fresh() any {
	made, err := t.create(api.CreateAgentParams{Temporary: new(true), Approvals: new("ask")})
	if err != nil {
		return t.fail(err)
	}
	return t.begin(made, true)()
}

// create creates an agent as the options say.
func (t *talk) create(p api.CreateAgentParams) (agent string, err error) {
	o := t.o
	p.DefaultCwd = &o.Cwd
	if o.Model != "" {
		p.Model = &o.Model
	}
	if o.Preset != "" {
		p.Preset = &o.Preset
	}
	if o.Template != "" {
		text, err := safefile.ReadLinked(o.Template, maxTemplate)
		if err != nil {
			return "", err
		}
		p.SystemPrompt = new(string(text))
	}
	return t.chat.create(p)
}

// load goes to the agent of a session, as the options narrow it.
func (t *talk) load(p api.LoadSessionParams) work {
	p = narrowed(t, p)
	return func() any {
		agent, err := t.chat.load(p)
		if err != nil {
			return t.fail(explained(t, p, err))
		}
		return t.begin(agent, false)()
	}
}

// explained is why a session was not loaded; of the one that was used last, what to do where there is none, and of one whose agent runs, that
// it is not narrowed.
func explained(t *talk, p api.LoadSessionParams, err error) error {
	if narrows(t.o) && client.KindOf(err) == api.KindAgentExists {
		return fmt.Errorf("%s runs already, and stays as it is: leave out --preset, --model and --yolo; /permissions and /model change it", protocol.Value(p.SessionName))
	}
	if !protocol.Value(p.Last) || client.KindOf(err) != api.KindSessionNotFound {
		return err
	}
	saved, failed := client.Do(t.ctx, t.c, "", api.ListSessions, api.ListSessionsParams{Limit: new(uint64(1)), IncludeTemp: new(true)})
	switch {
	case failed != nil:
		return err
	case len(saved.Sessions) == 0 && len(saved.UnreachableNodes) == 0:
		return fmt.Errorf("no session is saved yet: %s --fresh begins one", t.o.Program)
	}
	return fmt.Errorf("the session that was used last is not saved any more: %s shows the others", t.o.Program)
}

// toSaved goes to the agent of a named session. A saved one that was to refuse what needs an approval asks
// from now on: there is somebody to ask.
func (t *talk) toSaved(name string) work {
	return func() any {
		if f, err := t.chat.find(name); err == nil && f.saved && !narrows(t.o) {
			if err := t.chat.restore(name, t.o.Cwd, nil); err != nil {
				return t.fail(err)
			}
		}
		return t.load(api.LoadSessionParams{SessionName: &name})()
	}
}

// narrows reports whether the options narrow a saved agent.
func narrows(o Options) bool { return o.Preset != "" || o.Model != "" }

// narrowed are the parameters with what the options say.
func narrowed(t *talk, p api.LoadSessionParams) api.LoadSessionParams {
	if t.o.Preset != "" {
		p.Preset = &t.o.Preset
	}
	if t.o.Model != "" {
		p.Model = &t.o.Model
	}
	return p
}

// enterLobby asks which session is gone on with. Where there is none, there is nothing to ask. It is
// work.
func (t *talk) enterLobby() any {
	saved, err := client.Do(t.ctx, t.c, "", api.ListSessions, api.ListSessionsParams{Limit: new(uint64(api.MaxSessions)), IncludeTemp: new(true)})
	if err != nil {
		return t.fail(err)
	}
	if text := cli.Incomplete(saved.UnreachableNodes, t.c.TakeStale()); text != "" {
		t.chat.tell(said{t.look().problem(cli.Harmless(text, true))})
	}
	var last *api.SavedSession
	var list []api.SavedSession
	for _, s := range saved.Sessions {
		if s.MessageCount == 0 {
			continue
		}
		if s.Name == protocol.Value(saved.LastSession) {
			last = &s
		}
		if !s.IsTemp {
			list = append(list, s)
		}
	}
	if last == nil && len(list) == 0 {
		return t.fresh()
	}
	return lobbyOf(t, last, list, time.Now())
}

// lobbyOf is the lobby's question.
func lobbyOf(t *talk, last *api.SavedSession, list []api.SavedSession, now time.Time) asks {
	var b strings.Builder
	keys := "2q"
	fmt.Fprintf(&b, "%s\n\n", t.look().style(bold, "nexus"))
	if last != nil {
		keys = "1" + keys
		fmt.Fprintf(&b, "  1) Resume: %s\n", described(*last, now))
	}
	b.WriteString("  2) Fresh session\n")
	if len(list) > 0 {
		keys += "3"
		b.WriteString("  3) Choose from saved …\n")
	}
	b.WriteString("\n[" + strings.Join(strings.Split(strings.ReplaceAll(sorted(keys), "q", ""), ""), "/") + ", q to leave]:")
	return asks{text: b.String(), keys: keys, answer: func(choice string) work {
		switch {
		case choice == "1" && last != nil:
			return t.toSaved(last.Name)
		case choice == "2":
			return t.fresh
		case choice == "3" && len(list) > 0:
			return func() any { return chooseOf(t, list, now) }
		case choice == "q":
			return func() any { return ended(nil) }
		}
		return func() any { return lobbyOf(t, last, list, now) }
	}}
}

// chooses reports whether a line is one of the keys of a question, alone.
func (q *question) chooses(line string) bool {
	line = strings.TrimSpace(line)
	return len(line) == 1 && strings.Contains(q.keys, line)
}

// typedEarly takes a line that chooses nothing, in the lobby: it waits for whoever is chosen.
func typedEarly(t *talk, q *question, text string) ([]string, work) {
	word := strings.TrimSpace(text)
	name, _ := firstWord(word)
	switch {
	case word == "/quit":
		return t.handle(ended(nil))
	case name == "/help":
		lines, _ := t.command(word)
		if t.o.Plain {
			lines = append(lines, q.text)
		}
		return lines, nil
	case word != "":
		t.queued = append(t.queued, message{text: text})
	}
	if !t.o.Plain {
		return nil, nil // it is drawn
	}
	var lines []string
	for _, m := range queuedFor(t) {
		lines = append(lines, t.look().note(cli.Harmless("waits for a choice: "+m.text, true)))
	}
	return append(lines, q.text), nil
}

// earlier submits what has waited for somebody to talk to.
func earlier(t *talk) (lines []string, works []work) {
	var early []message
	t.queued = slices.DeleteFunc(t.queued, func(m message) bool {
		if m.agent == "" {
			early = append(early, m)
		}
		return m.agent == ""
	})
	for _, m := range early {
		more, todo := t.submit(m.text, false)
		lines, works = append(lines, more...), append(works, todo)
	}
	return lines, works
}

// together does several works, one after the other; nil if there is none.
func together(t *talk, works []work) work {
	works = slices.DeleteFunc(works, func(w work) bool { return w == nil })
	if len(works) == 0 {
		return nil
	}
	last := len(works) - 1
	return func() any {
		for _, w := range works[:last] {
			t.chat.tell(w())
		}
		return works[last]()
	}
}

func sorted(keys string) string {
	out := ""
	for _, k := range "123q" {
		if strings.ContainsRune(keys, k) {
			out += string(k)
		}
	}
	return out
}

// chooseOf asks for one of the saved sessions, the newest of which are first.
func chooseOf(t *talk, list []api.SavedSession, now time.Time) asks {
	var b strings.Builder
	shown := list[:min(len(list), shownSaved)]
	for i, s := range shown {
		fmt.Fprintf(&b, "  %2d) %s\n", i+1, described(s, now))
	}
	beyond := len(list) - len(shown)
	if beyond > 0 {
		b.WriteString(moreSaved(beyond) + "\n")
	}
	b.WriteString("\nnumber or name, q to leave:")
	return asks{text: b.String(), listed: len(shown), beyond: beyond, answer: func(choice string) work {
		if name := chosenOf(list, choice); name != "" {
			return t.toSaved(name)
		}
		if choice == "q" {
			return func() any { return ended(nil) }
		}
		return func() any {
			again := chooseOf(t, list, now)
			if choice != "" {
				again.text = t.look().problem(cli.Harmless("none of these: "+choice, true)) + "\n" + again.text
			}
			return again
		}
	}}
}

// chosenOf is the session that a number of the list or a name chooses; "" for none.
func chosenOf(list []api.SavedSession, choice string) string {
	if n, err := strconv.Atoi(choice); err == nil && n >= 1 && n <= min(len(list), shownSaved) {
		return list[n-1].Name
	}
	for _, s := range list {
		if s.Name == choice {
			return choice
		}
	}
	return ""
}

func moreSaved(n int) string { return fmt.Sprintf("   … %d more: type a name", n) }

// lines are a question as it is drawn in at most so many rows, if it can be: of the lobby its options remain, and of a list of sessions the newest.
func (q *question) lines(most, width int) []string {
	lines := strings.Split(q.text, "\n")
	if q.keys == "" && q.listed == 0 {
		return lines
	}
	for i := range lines {
		lines[i] = ansi.Truncate(lines[i], width, "…")
	}
	if len(lines) <= most {
		return lines
	}
	lines = slices.DeleteFunc(lines, func(line string) bool { return line == "" })
	switch {
	case len(lines) <= most:
		return lines
	case q.listed == 0:
		return lines[1:] // without the title
	}
	end := len(lines) - 1
	ask := lines[end]
	if q.beyond > 0 {
		end--
	}
	begin := end - q.listed
	shown := min(q.listed, max(1, most-begin-2))
	if more := q.listed - shown + q.beyond; more > 0 {
		return append(lines[:begin+shown], ansi.Truncate(moreSaved(more), width, "…"), ask)
	}
	return append(lines[:begin+shown], ask)
}

// described is a session in a few words.
func described(s api.SavedSession, now time.Time) string {
	return fmt.Sprintf("%s (%s, %s)", cli.Harmless(s.Name, true), ago(now.Sub(time.UnixMilli(int64(s.UpdatedAt*1000)))), cli.Counted(s.MessageCount, "message"))
}

// ago is how long something is ago.
func ago(d time.Duration) string {
	switch {
	case d < time.Minute:
		return "just now"
	case d < time.Hour:
		return fmt.Sprintf("%dm ago", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh ago", int(d.Hours()))
	default:
		return fmt.Sprintf("%dd ago", int(d.Hours()/24))
	}
}
