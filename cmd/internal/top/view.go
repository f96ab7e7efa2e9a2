package top

import (
	"fmt"
	"strings"
	"time"

	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/x/ansi"

	"nexus.internal/cmd/internal/cli"
	"nexus.internal/protocol"
)

var (
	faint   = lipgloss.NewStyle().Faint(true)
	bold    = lipgloss.NewStyle().Bold(true)
	reverse = lipgloss.NewStyle().Reverse(true)
	red     = lipgloss.NewStyle().Foreground(lipgloss.Red)
	green   = lipgloss.NewStyle().Foreground(lipgloss.Green)
	yellow  = lipgloss.NewStyle().Foreground(lipgloss.Yellow)
)

// headings are those of the columns on the screen, and widths how many cells each takes, with the
// space before it; that of the names is what the others leave.
var (
	headings = [columns]string{"AGENT", "STATE", "CPU%", "MEMORY", "TOKENS", "COST", "QUEUE", "ASKS", "RESTARTS"}
	widths   = [columns]int{0, 9, 7, 7, 7, 8, 6, 5, 9}
)

const (
	leastName  = 8  // cells for names
	leastCurve = 8  // cells for a curve; with fewer there is none
	headLines  = 6  // above the agents
	footLines  = 3  // below them
	leastRows  = 4  // agents that are shown, before the curves of all are
	sumLabel   = 20 // cells before those
)

// layout is how the cells of a line are divided.
type layout struct {
	columns, name, curve int
	full                 float64 // what the highest level of the curves is
}

// layoutOf has as many columns as there is room for.
func layoutOf(width, longest int) layout {
	l := layout{columns: columns}
	room := width
	for _, w := range widths {
		room -= w
	}
	for ; room < leastName && l.columns > 1; room += widths[l.columns] {
		l.columns--
	}
	l.name = max(leastName, min(longest, room-leastCurve-1))
	if l.curve = min(room-l.name-1, maxCells); l.curve < leastCurve {
		l.name, l.curve = max(0, room), 0
	}
	return l
}

// cell is foreign text in so many cells.
func cell(text string, width int) string {
	text = ansi.Truncate(cli.Harmless(text, true), width, "…")
	return text + strings.Repeat(" ", max(0, width-ansi.StringWidth(text)))
}

// shown is what a column shows of an agent.
func (c column) shown(a *agent) string {
	switch c {
	case byState:
		return a.State
	case byProcessor:
		if a.percent < 0 {
			return "-"
		}
		return fmt.Sprintf("%.1f", a.percent)
	case byMemory:
		return binary(c.value(a))
	case byTokens:
		return decimal(c.value(a))
	case byCost:
		return dollars(c.value(a))
	case byQueue, byApprovals, byRestarts:
		return decimal(c.value(a))
	case byAgent:
	}
	return a.AgentID
}

// heading is the line above the agents, with a mark at the column that they are sorted by.
func (m *model) heading(l layout) string {
	mark := "▼"
	if m.inverted {
		mark = "▲"
	}
	var b strings.Builder
	for c := range column(l.columns) {
		title := headings[c]
		if c == m.by {
			title = mark + title
		}
		switch c {
		case byAgent:
			b.WriteString(cell(title, l.name))
		case byState:
			if c != m.by {
				title = " " + title
			}
			b.WriteString(cell(title, widths[c]))
		default:
			fmt.Fprintf(&b, "%*s", widths[c], title)
		}
	}
	if l.curve > 0 {
		b.WriteString(" " + cell(m.curveTitle(l.curve), l.curve))
	}
	return bold.Render(b.String())
}

// curveTitle says what the curves of the agents are.
func (m *model) curveTitle(cells int) string {
	what := "CPU"
	switch m.by { //nolint:exhaustive // the others have that of the processor
	case byMemory:
		what = "MEMORY"
	case byTokens, byCost:
		what = "TOKENS"
	}
	if span := fmt.Sprintf("%s, %s", what, clock(cells)); len(span) <= cells {
		return span
	}
	return what
}

// clock is the time that so many cells of a curve are: 50 s, 3 min.
func clock(cells int) string {
	span := time.Duration(cells) * cellTime
	if s := int(span.Seconds()); s%60 != 0 {
		if s < 100 {
			return fmt.Sprintf("%d s", s)
		}
		return fmt.Sprintf("%.1f min", span.Minutes())
	}
	return fmt.Sprintf("%.0f min", span.Minutes())
}

// row is the line of an agent.
func (m *model) row(a *agent, l layout) string {
	var b strings.Builder
	style := func(s lipgloss.Style, text string) {
		if a.AgentID == m.chosen {
			s = reverse
		}
		b.WriteString(s.Render(text))
	}
	plain := lipgloss.NewStyle()
	for c := range column(l.columns) {
		text := c.shown(a)
		switch {
		case c == byAgent:
			style(plain, cell(text, l.name))
		case c == byState:
			style(stateStyle(a.State), " "+cell(text, widths[c]-1))
		case c == byApprovals && a.PendingPermissions > 0:
			style(yellow, fmt.Sprintf("%*s", widths[c], text))
		default:
			style(plain, fmt.Sprintf("%*s", widths[c], text))
		}
	}
	if l.curve > 0 {
		b.WriteString(" " + green.Render(a.curve(m.by).draw(l.curve, l.full)))
	}
	return b.String()
}

func stateStyle(state string) lipgloss.Style {
	switch state {
	case "failed":
		return red
	case "busy", "backoff", "starting", "stopping":
		return yellow
	case "stopped":
		return faint
	}
	return lipgloss.NewStyle()
}

// counted says how many agents there are, in which states.
func (m *model) counted() string {
	states, asks := map[string]int{}, 0
	for _, a := range m.board.agents {
		states[a.State]++
		asks += a.PendingPermissions
	}
	text := cli.Counted(len(m.board.agents), "agent")
	sep := ": "
	for _, state := range stateOrder {
		if n := states[state]; n > 0 {
			text += fmt.Sprintf("%s%d %s", sep, n, state)
			sep = ", "
		}
	}
	if asks > 0 {
		text += " · " + cli.Counted(asks, "approval") + " waiting"
	}
	return text
}

// above are the lines above the agents.
func (m *model) above() []string {
	b := &m.board
	processor, memory, tokens := b.sums()
	used, cost := b.used()
	percent := "-"
	if processor >= 0 {
		percent = fmt.Sprintf("%.1f %%", processor)
	}
	lines := []string{bold.Render("nexus top") + " · " + m.counted()}
	cells := max(0, min(maxCells, m.width-sumLabel))
	sum := func(name, value string, c *curve) {
		lines = append(lines, fmt.Sprintf("%-10s%9s ", name, value)+green.Render(c.draw(cells, c.most(cells))))
	}
	sum("processor", percent, &b.processor)
	sum("memory", binary(memory), &b.memory)
	sum("tokens/min", decimal(tokens), &b.tokens)
	return append(lines, faint.Render(fmt.Sprintf("%s tokens in all, %s · curves of %s", decimal(used), dollars(cost), clock(cells))))
}

// details are about the chosen agent.
func (m *model) details() string {
	a := m.board.agents[m.chosen]
	if a == nil {
		return ""
	}
	parts := []string{a.AgentID, a.State}
	add := func(name string, value *string) {
		if text := protocol.Value(value); text != "" {
			parts = append(parts, strings.TrimLeft(name+" "+text, " "))
		}
	}
	add("", cli.MadeBy(a.Kind, a.Model))
	add("", a.PermissionLevel)
	if a.PID != nil {
		parts = append(parts, fmt.Sprintf("process %d", *a.PID))
	}
	add("on", &a.Node)
	add("turn", a.RequestID)
	add("of", a.ParentAgentID)
	add("error:", a.LastError)
	add("", a.Cwd)
	return cli.Harmless(strings.Join(parts, " · "), true)
}

// below are the lines below the agents.
func (m *model) below() []string {
	lines := []string{"", m.details()}
	switch {
	case m.question != nil:
		return append(lines, bold.Render(m.question.text+" y/n"))
	case m.note != "":
		return append(lines, m.note)
	}
	return append(lines, faint.Render("q quit  ↑↓ choose  ←→ sort  i invert  enter attach  c cancel  r restart  k kill"))
}

// screen are the lines of the whole screen.
func (m *model) screen() []string {
	longest := len(headings[byAgent]) + 1
	for _, a := range m.board.agents {
		longest = max(longest, ansi.StringWidth(a.AgentID))
	}
	l := layoutOf(m.width, longest)
	l.full = m.board.most(m.by, l.curve)
	head := append(m.above(), "")
	if m.height < headLines+1+leastRows+footLines {
		head = head[:1]
	}
	lines := append(head, m.heading(l))
	if m.missing != "" {
		lines = append(lines, yellow.Render(m.missing))
	}
	room := max(1, m.height-len(lines)-footLines)
	agents := m.board.sorted(m.by, m.inverted)
	at := m.place(agents)
	m.first = max(0, min(m.first, len(agents)-room, at), at-room+1)
	for _, a := range agents[m.first:min(len(agents), m.first+room)] {
		lines = append(lines, m.row(a, l))
	}
	switch {
	case m.broken != "":
		lines = append(lines[:max(0, min(len(lines), m.height-footLines-1))], red.Render(m.broken))
	case len(agents) == 0:
		lines = append(lines, "no agents")
	}
	for len(lines) < m.height-footLines {
		lines = append(lines, "")
	}
	lines = append(lines, m.below()...)
	lines = lines[max(0, len(lines)-m.height):]
	for i := range lines {
		lines[i] = ansi.Truncate(lines[i], m.width, "…")
	}
	return lines
}
