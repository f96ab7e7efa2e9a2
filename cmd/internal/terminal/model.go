package terminal

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"charm.land/bubbles/v2/textarea"
	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/x/ansi"

	"nexus.internal/cmd/internal/cli"
)

// model is the terminal as it is drawn: the lines that change stand below all that is finished.
type model struct {
	t       *talk
	input   textarea.Model
	history *history
	width   int
	height  int
	leaving bool // Ctrl-C was typed, and nothing else since

	keyboard *Keyboard
	working  int               // how much work is under way
	early    []tea.KeyPressMsg // keys that wait for somebody to talk to
	unheard  int               // how many keys more came than can wait
	burst    burst
	typed    int // how often something was typed
	rest     rest

	expected string // the request that waits longest; "" for none
	offered  bool   // a key answers it
	lineFor  string // the request that a key answered as the line began: what was typed before it was shown is no answer; "" for none
	pauses   int    // those that have begun

	lines    []string // to be printed: one after the other, as commands run side by side
	printing bool
	odd      bool // how often something was printed
	begun    bool // nothing is printed before

	search  *search
	choices []string // what Tab found
}

// search is a search in the history.
type search struct {
	text string
	at   int
}

// tick has running calls drawn with their time.
type tick struct{}

const (
	tickEvery  = time.Second
	inputLines = 10
)

func newModel(t *talk, h *history, k *Keyboard) *model {
	m := &model{t: t, history: h, keyboard: k, input: textarea.New()}
	m.input.Prompt, m.input.ShowLineNumbers, m.input.Placeholder = "", false, ""
	m.input.DynamicHeight, m.input.MaxHeight, m.input.MinHeight, m.input.CharLimit = true, inputLines, 1, 0
	m.input.MaxContentHeight = math.MaxInt32 // rows; of what is longer it would drop lines without a word, so paste bounds it
	m.input.SetHeight(1)
	m.input.SetVirtualCursor(false)
	styles := m.input.Styles()
	styles.Focused.CursorLine = lipgloss.NewStyle() // else it is black on whatever the terminal has
	styles.Cursor.Color = nil                       // the terminal's own
	m.input.SetStyles(styles)
	m.input.KeyMap.InsertNewline.SetKeys("alt+enter", "shift+enter", "ctrl+j")
	m.input.Focus()
	return m
}

// Init implements [tea.Model].
func (m *model) Init() tea.Cmd { return tea.Batch(m.do(m.t.start), m.ticking()) }

func (m *model) ticking() tea.Cmd {
	return tea.Tick(tickEvery, func(time.Time) tea.Msg { return tick{} })
}

// printed says that lines were printed. bubbletea leaves the cursor behind them, and brings it back with the
// next frame that is not as the one before.
type printed struct{}

// print prints the lines that wait; at the end of the talk it ends the program after them.
func (m *model) print() tea.Cmd {
	switch {
	case m.printing || !m.begun:
		return nil
	case len(m.lines) > 0:
		var all []tea.Cmd
		for lines := range slices.Chunk(m.lines, max(1, m.height-m.tallest())) {
			all = append(all, tea.Println(strings.Join(lines, "\n")))
		}
		m.lines, m.printing = nil, true
		return tea.Sequence(append(all, func() tea.Msg { return printed{} })...)
	case m.t.over:
		return m.leave()
	}
	return nil
}

// tallest is how many lines change at most. bubbletea prints above them what the rest of the screen has
// room for: of more, it would leave a copy of what changes in the scrollback.
func (m *model) tallest() int { return max(1, m.height*2/3) }

// do has work done.
func (m *model) do(w work) tea.Cmd {
	if w == nil {
		return nil
	}
	m.working++
	return func() tea.Msg { return came{w()} }
}

// show prints finished lines, and has work done.
func (m *model) show(lines []string, more work) tea.Cmd {
	m.lines = append(m.lines, lines...)
	return tea.Batch(m.print(), m.do(more))
}

// empty empties the screen: what is finished goes up into the scrollback, and what changes is drawn anew. What bubbletea
// has for this erases no more than what changes, and moves the cursor beside what is printed.
func (m *model) empty() tea.Cmd {
	size := tea.WindowSizeMsg{Width: m.width, Height: m.height}
	return tea.Batch(m.show(slices.Repeat([]string{" "}, m.height), nil), func() tea.Msg { return size })
}

// Update implements [tea.Model].
func (m *model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	key, pressed := msg.(tea.KeyPressMsg)
	pasted, isPaste := msg.(tea.PasteMsg)
	if pressed || isPaste {
		m.typed++
	}
	if m.input.Length() == 0 && m.burst.text == "" {
		if m.lineFor = ""; m.offered {
			m.lineFor = m.expected
		}
	}
	if m.t.over && (pressed || isPaste) {
		m.rest.key(key)
		m.rest.take(pasted.Content)
		return m, nil
	}
	if pressed && m.hold(key) {
		return m, m.offer(true)
	}
	took := m.release()
	do := m.update(msg)
	for lines, more, ok := onward(m.t); ok; lines, more, ok = onward(m.t) {
		do = tea.Batch(do, m.show(lines, more))
	}
	return m, tea.Batch(took, do, m.offer(pressed))
}

func (m *model) update(msg tea.Msg) tea.Cmd {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
		m.t.resize(msg.Width)
		m.resize()
		return nil
	case tea.KeyPressMsg:
		return m.keys(msg)
	case came:
		m.working--
		return tea.Batch(m.update(msg.msg), m.retype())
	case tea.PasteMsg:
		return m.paste(msg.Content)
	case Begun:
		m.begun = true
		return m.print()
	case printed:
		m.printing, m.odd = false, !m.odd
		return m.print()
	case paused:
		if int(msg) == m.pauses {
			m.offered = m.expected != ""
		}
		return nil
	case gathered:
		return m.gathered()
	case chosen:
		if int(msg) == m.typed && m.answers(m.input.Value()) {
			return m.enter(false)
		}
		return nil
	case quiet:
		return m.quietened(msg)
	case tick:
		return m.ticking()
	case cleared:
		return m.empty()
	case completions:
		m.complete(msg)
		return nil
	case happened, parted, sent, unbegun, stopped, wants, ours, settled, used, said, overheard, arrived, stays, renamed, asks, lobby, failed, ended, resend, whispers, carriedOut:
		return m.show(m.t.handle(msg))
	}
	var cmd tea.Cmd
	m.input, cmd = m.input.Update(msg)
	return cmd
}

// resize gives the input the room beside its prompt.
func (m *model) resize() { m.input.SetWidth(max(10, m.width-ansi.StringWidth(m.prompt()))) }

// key takes a key.
func (m *model) key(k tea.KeyPressMsg) tea.Cmd {
	name := k.String()
	if name != "ctrl+c" {
		m.leaving = false
	}
	if m.search != nil && m.searching(k) {
		return nil
	}
	m.choices = nil
	switch name {
	case "enter":
		return m.enter(false)
	case "ctrl+s":
		return m.enter(true)
	case "esc":
		return m.escape()
	case "ctrl+c":
		return m.interrupt()
	case "ctrl+d":
		if m.input.Length() == 0 {
			return m.show(m.t.handle(ended(nil)))
		}
	case "ctrl+z":
		return m.keyboard.Suspend
	case "ctrl+o":
		return m.show(m.t.shown.unfold(), nil)
	case "ctrl+l":
		return m.empty()
	case "ctrl+r":
		m.search = &search{at: len(m.history.lines)}
		return nil
	case "tab":
		return m.completing()
	case "up", "down":
		if m.recall(name) {
			return nil
		}
	}
	var cmd tea.Cmd
	m.input, cmd = m.input.Update(k)
	if k.Text == "" {
		return cmd
	}
	return tea.Batch(cmd, m.gather(), m.choosing())
}

// enter submits what was typed; a line that ends with a backslash goes on.
func (m *model) enter(steer bool) tea.Cmd {
	text := m.input.Value()
	if m.t.question == nil && m.lineFor != "" && m.lineFor == waitingFor(m.t.requests) {
		if lines, more, ok := approve(m.t, text); ok {
			m.input.Reset()
			return m.show(lines, more)
		}
	}
	if head, ok := strings.CutSuffix(text, `\`); ok && m.t.question == nil {
		m.input.SetValue(head + "\n")
		return nil
	}
	if q := m.t.question; q == nil || q.keys != "" && !q.chooses(text) {
		m.history.add(text)
	}
	m.input.Reset()
	return m.show(m.t.submit(text, steer))
}

// escape leaves a question, or cancels the running turn, or empties the input.
func (m *model) escape() tea.Cmd {
	if q := m.t.question; q != nil && q.keys == "" {
		m.input.Reset()
		return m.do(m.t.drop())
	}
	if more, ok := m.t.interrupt(); ok {
		return m.do(more)
	}
	m.input.Reset()
	return nil
}

// interrupt is escape for Ctrl-C, the second of which leaves.
func (m *model) interrupt() tea.Cmd {
	if m.leaving {
		return m.show(m.t.handle(ended(nil)))
	}
	if m.input.Length() > 0 {
		m.input.Reset()
		return nil
	}
	m.leaving = true
	more, _ := m.t.interrupt()
	return m.do(more)
}

// recall shows another line of the history, from the first or last line of the input.
func (m *model) recall(key string) bool {
	by := -1
	if key == "down" {
		by = 1
	}
	if by < 0 && m.input.Line() > 0 || by > 0 && m.input.Line() < m.input.LineCount()-1 || m.t.question != nil {
		return false
	}
	if line, ok := m.history.step(by, m.input.Value()); ok {
		m.input.SetValue(line)
	}
	return true
}

// searching takes a key of a search; false if the key ends it and counts besides.
func (m *model) searching(k tea.KeyPressMsg) bool {
	s := m.search
	switch name := k.String(); {
	case name == "ctrl+r":
		if at, ok := m.history.find(s.text, s.at); ok {
			s.at = at
			m.input.SetValue(m.history.lines[at])
		}
		return true
	case name == "backspace":
		s.text = s.text[:max(0, len(s.text)-1)]
	case name == "esc", name == "ctrl+g", name == "ctrl+c":
		m.search = nil
		m.input.Reset()
		return true
	case k.Text != "":
		s.text += k.Text
	default:
		m.search = nil
		return false
	}
	if at, ok := m.history.find(s.text, len(m.history.lines)); ok {
		s.at = at
		m.input.SetValue(m.history.lines[at])
	}
	return true
}

// prompt is what stands before the input.
func (m *model) prompt() string {
	switch {
	case m.search != nil:
		return "search \"" + m.search.text + "\": "
	case m.t.aside != nil:
		return m.t.agent + "> "
	}
	return "> "
}

// View implements [tea.Model]. While keys are held, it is as it was.
func (m *model) View() tea.View {
	if m.burst.text == "" {
		m.burst.drawn = m.draw()
	}
	return m.burst.drawn
}

func (m *model) draw() tea.View {
	if m.width == 0 {
		return tea.NewView(" ") // one of no line would be taken for one of a line by what prints above it
	}
	if m.t.over && len(m.lines) == 0 {
		return tea.NewView("")
	}
	below := m.below()
	input := strings.Split(m.input.View(), "\n")
	most := max(1, m.tallest()-len(below)-len(input))
	above := m.t.shown.pending(most)
	for _, text := range waitingTexts(m.t) {
		above = append(above, m.t.look().style(dim, ansi.Truncate("  queued: "+cli.Harmless(text, true), m.width, "…")))
	}
	above = append(above, m.asked(most)...)
	above = above[max(0, len(above)-most):]
	prompt := m.prompt()
	for i := range input {
		if i == 0 {
			input[i] = m.t.look().style(bold, prompt) + input[i]
		} else {
			input[i] = strings.Repeat(" ", ansi.StringWidth(prompt)) + input[i]
		}
	}
	lines := append(append(above, input...), below...)
	if m.odd {
		lines = append(lines[:len(lines)-1], lines[len(lines)-1]+ansi.ResetStyle) // not as before, and looks the same
	}
	v := tea.NewView(strings.Join(lines, "\n"))
	if cursor := m.input.Cursor(); cursor != nil {
		cursor.X += ansi.StringWidth(prompt)
		cursor.Y += len(above)
		v.Cursor = cursor
	}
	return v
}

// asked is what the person is asked, in at most so many rows, if it can be.
func (m *model) asked(most int) []string {
	if q := m.t.question; q != nil {
		return q.lines(most, m.width)
	}
	return m.offering()
}

// below are the lines under the input: what Tab found, and the status.
func (m *model) below() []string {
	var lines []string
	if len(m.choices) > 0 {
		lines = append(lines, m.t.look().style(dim, ansi.Truncate(cli.Harmless(strings.Join(m.choices, "  "), true), m.width, "…")))
	}
	status := m.t.status()
	if m.leaving {
		status = "Ctrl-C once more leaves"
	}
	return append(lines, m.t.look().style(dim, ansi.Truncate(status, m.width, "…")))
}

// status is the line of the agent that is talked to.
func (t *talk) status() string {
	if t.agent == "" {
		return "no agent"
	}
	parts := []string{t.agent}
	state := t.shown.phase
	if state == "" && t.state != "" && t.state != readyState {
		state = t.state
	}
	if t.c.Silent() { // what the agent does is not known then
		state = "the server does not answer"
	}
	if state != "" {
		parts = append(parts, state)
	}
	if u := t.update; u.Model != "" {
		parts = append(parts, cli.Harmless(*cli.MadeBy(t.kind, &u.Model), true), cli.Harmless(u.Preset, true))
		if u.BudgetTokens > 0 {
			parts = append(parts, fmt.Sprintf("%s of %s tokens", thousands(u.TotalTokens), thousands(u.BudgetTokens)))
		}
	}
	parts = append(parts, t.used.told()...)
	if n := len(waitingTexts(t)); n > 0 {
		parts = append(parts, fmt.Sprintf("%d queued", n))
	}
	if t.incarnation > 1 {
		parts = append(parts, fmt.Sprintf("process %d", t.incarnation))
	}
	return strings.Join(parts, " · ")
}

// told is what was used, as far as there is a bound or a price.
func (u used) told() (parts []string) {
	if most := u.limits.Tokens; most > 0 {
		parts = append(parts, fmt.Sprintf("%s of %s used", thousands(u.tokens), thousands(most)))
	}
	switch most := u.limits.CostUSD; {
	case most > 0:
		parts = append(parts, fmt.Sprintf("$%.4f of $%.2f", u.cost, most))
	case u.cost > 0:
		parts = append(parts, fmt.Sprintf("$%.4f", u.cost))
	}
	return parts
}

const (
	readyState = "ready"
	busyState  = "busy"
)

// thousands is a number of tokens in few characters.
func thousands(n uint64) string {
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%.1fk", float64(n)/1000)
}
