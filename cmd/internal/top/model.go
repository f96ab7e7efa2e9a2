package top

import (
	"context"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/client"
	"nexus.internal/cmd/internal/cli"
	"nexus.internal/cmd/internal/terminal"
)

// Times of the samples.
const (
	sampleEvery = time.Second
	sampleSoon  = 200 * time.Millisecond // after an event
	patience    = 10 * time.Second       // for an answer of the server
	silence     = 2 * time.Second        // without one, after which that is said
)

// model is the screen as it is drawn.
type model struct {
	ctx   context.Context
	c     *client.Client
	began time.Time
	board board

	keyboard *terminal.Keyboard

	by       column
	inverted bool
	chosen   string // agent
	first    int    // the agent at the top of the screen, by its place
	question *question
	note     string // what came of the last deed
	broken   string // why there was no sample
	missing  string // why it is not all, or old
	attach   string // the agent that the person goes to

	width, height int
	round         int  // of the sample that is due next: older ticks are void
	asking, soon  bool // a sample is asked for, or due after an event
}

// Messages.
type (
	sampled struct {
		infos     []api.AgentInfo
		unreached []string // machines of a cluster
		stale     string   // as of when the machine says that this is
		at        time.Duration
		err       error
	}
	due    struct{ round int } // a sample is
	silent struct{ round int } // the server has been, since it was asked for that sample
	// happened says that some agent's state has changed.
	happened struct{}
	// done says what came of a deed.
	done string
)

// Init implements [tea.Model].
func (m *model) Init() tea.Cmd { return m.sample() }

// sample asks for one, unless one is asked for.
func (m *model) sample() tea.Cmd {
	if m.asking {
		return nil
	}
	m.asking, m.soon = true, false
	m.round++
	round := m.round
	return tea.Batch(func() tea.Msg {
		ctx, cancel := context.WithTimeout(m.ctx, patience)
		defer cancel()
		list, err := client.Do(ctx, m.c, "", api.ListAgents, api.None{})
		return sampled{list.Agents, list.UnreachableNodes, m.c.TakeStale(), time.Since(m.began), err}
	}, tea.Tick(silence, func(time.Time) tea.Msg { return silent{round} }))
}

// after has a sample taken later.
func (m *model) after(wait time.Duration) tea.Cmd {
	m.round++
	round := m.round
	return tea.Tick(wait, func(time.Time) tea.Msg { return due{round} })
}

// Update implements [tea.Model].
func (m *model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
	case tea.KeyPressMsg:
		return m, m.key(msg.String())
	case due:
		if msg.round == m.round {
			return m, m.sample()
		}
	case silent:
		if m.asking && msg.round == m.round && m.broken == "" {
			m.broken = "no answer: this is as it was when the server answered last"
		}
	case happened:
		if !m.asking && !m.soon {
			m.soon = true
			return m, m.after(sampleSoon)
		}
	case done:
		m.note = string(msg)
		return m, m.sample()
	case sampled:
		m.asking, m.broken = false, ""
		if msg.err != nil {
			m.broken = "no answer: " + cli.Harmless(msg.err.Error(), true)
		} else {
			m.board.take(msg.infos, msg.at)
			m.missing = cli.Harmless(cli.Incomplete(msg.unreached, msg.stale), true)
			m.choose(m.place(m.board.sorted(m.by, m.inverted)))
		}
		return m, m.after(sampleEvery)
	}
	return m, nil
}

// View implements [tea.Model].
func (m *model) View() tea.View {
	text := ""
	if m.width > 0 && m.attach == "" {
		text = strings.Join(m.screen(), "\n")
	}
	v := tea.NewView(text)
	v.AltScreen = true
	return v
}

// place is where the chosen agent is among these; the first one's if it is not.
func (m *model) place(agents []*agent) int {
	return max(0, slices.IndexFunc(agents, func(a *agent) bool { return a.AgentID == m.chosen }))
}

// choose chooses the agent at a place; beyond the last one, that one.
func (m *model) choose(at int) {
	agents := m.board.sorted(m.by, m.inverted)
	if len(agents) == 0 {
		m.chosen = ""
		return
	}
	m.chosen = agents[max(0, min(at, len(agents)-1))].AgentID
}

// key takes a key.
func (m *model) key(name string) tea.Cmd {
	if name == "ctrl+c" || name == "q" && m.question == nil {
		return tea.Quit
	}
	m.note = ""
	if q := m.question; q != nil {
		m.question = nil
		if name == "y" {
			return m.do(q.deed, q.agent)
		}
		return nil
	}
	at := m.place(m.board.sorted(m.by, m.inverted))
	switch name {
	case "up":
		m.choose(at - 1)
	case "down":
		m.choose(at + 1)
	case "pgup":
		m.choose(at - m.height/2)
	case "pgdown":
		m.choose(at + m.height/2)
	case "home":
		m.choose(0)
	case "end":
		m.choose(len(m.board.agents))
	case "left":
		m.by = (m.by + column(columns) - 1) % column(columns)
	case "right":
		m.by = (m.by + 1) % column(columns)
	case "i":
		m.inverted = !m.inverted
	case "ctrl+l":
		return tea.ClearScreen
	case "ctrl+z":
		return m.keyboard.Suspend
	default:
		return m.deedKey(name)
	}
	return nil
}
