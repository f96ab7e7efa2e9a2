package top

import (
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
	"github.com/charmbracelet/x/vt"
	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	"nexus.internal/bridge/api"
	"nexus.internal/cmd/internal/terminal"
	"nexus.internal/fixtures"
	"nexus.internal/fixtures/picture"
)

// minutes are the samples of three minutes: an agent that works, with one that it has created, one
// that is gone, and if wanted one with texts that would act on a terminal.
func minutes(m *model, evil bool) {
	const hostile = "\x1b[2J\x1b]0;owned\x07\u202egnp.exe\n\u009b5n 日本語"
	for second := range 180 {
		used := uint64(400*second + second*second)
		infos := []api.AgentInfo{
			{
				AgentID: "main", CreatedAt: "a", State: "busy", PID: new(4711), Incarnation: 1, Queued: 2, Model: new("offline"), RequestID: new("r-1"),
				MemoryBytes: new(int64(30<<20 + second<<17)), CPUSeconds: new(float64(second*second) / 400), TokensUsed: &used, CostUsed: new(float64(used) / 1e6),
				PendingPermissions: 1, Cwd: new("/home/me/project"),
			},
			{
				AgentID: "worker-with-a-long-name", CreatedAt: "b", State: "ready", PID: new(4712), Incarnation: 3, Restarts: 2, Model: new("offline"), ParentAgentID: new("main"),
				MemoryBytes: new(int64(12 << 20)), CPUSeconds: new(float64(second / 30 * 2)), TokensUsed: new(used / 2), CostUsed: new(float64(used) / 2e6),
			},
			{AgentID: "stopped", CreatedAt: "c", State: "stopped", TokensUsed: new(uint64(12)), CostUsed: new(0.0)},
		}
		if evil {
			infos = append(infos, api.AgentInfo{AgentID: hostile, CreatedAt: "d", State: "failed", LastError: new(hostile)})
		}
		if second < 60 {
			infos = append(infos, api.AgentInfo{AgentID: "gone", CreatedAt: "e", State: "ready", MemoryBytes: new(int64(100 << 20))})
		}
		m.Update(sampled{infos: infos, at: time.Duration(second) * time.Second})
	}
}

// What the screen looks like, at which widths, and sorted by which columns.
func TestScreens(t *testing.T) {
	for _, size := range []struct {
		width, height int
		by            column
	}{{80, 14, byProcessor}, {120, 20, byMemory}, {200, 20, byTokens}, {60, 20, byAgent}, {40, 12, byState}} {
		name := fmt.Sprintf("%d", size.width)
		t.Run(name, func(t *testing.T) {
			m := &model{by: size.by}
			m.Update(tea.WindowSizeMsg{Width: size.width, Height: size.height})
			minutes(m, size.by != byProcessor)
			lines := m.screen()
			for i, line := range lines {
				if width := ansi.StringWidth(line); width > size.width {
					t.Errorf("%d columns: %q", width, line)
				}
				lines[i] = strings.TrimRight(ansi.Strip(line), " ")
			}
			if len(lines) != size.height {
				t.Errorf("%d lines, want %d", len(lines), size.height)
			}
			got := strings.Join(lines, "\n") + "\n"
			if size.by == byProcessor {
				page, err := os.ReadFile("../../OPERATIONS.md")
				if err != nil || !strings.Contains(string(page), "```text\n"+got+"```\n") {
					t.Errorf("cmd/OPERATIONS.md has not this screen (%v):\n%s", err, got)
				}
			}
			fixtures.Golden(t, "terminal/top-"+name+".txt", []byte(got))
		})
	}
}

// Nothing of what others wrote acts on the terminal.
func TestNothingActsOnTheScreen(t *testing.T) {
	styles := regexp.MustCompile("\x1b\\[[0-9;]*m")
	for name, bad := range fixtures.Hostile() {
		m := &model{by: byAgent}
		m.Update(tea.WindowSizeMsg{Width: 120, Height: 20})
		m.Update(sampled{infos: []api.AgentInfo{{
			AgentID: bad, CreatedAt: bad, State: bad, LastError: &bad, Model: &bad, Cwd: &bad, RequestID: &bad, ParentAgentID: &bad, PermissionLevel: &bad,
		}}})
		shown := m.screen()
		m.Update(sampled{err: errors.New(bad)})
		for _, line := range append(shown, m.screen()...) {
			if acts := fixtures.ActsOn(styles.ReplaceAllString(line, "")); acts != "" || ansi.StringWidth(line) > 120 {
				t.Errorf("%s: a terminal acts on %q of %.500q", name, acts, line)
			}
		}
	}
}

// The picture of README.
func TestPicture(t *testing.T) {
	m := &model{by: byProcessor}
	m.Update(tea.WindowSizeMsg{Width: 80, Height: 19})
	minutes(m, false)
	screen := vt.NewEmulator(80, 19)
	if _, err := screen.WriteString(strings.Join(m.screen(), "\r\n")); err != nil {
		t.Fatal(err)
	}
	svg, err := picture.SVG(screen, picture.Options{Title: "nexus top: three agents, and curves of processor, memory and tokens", Rows: 19})
	if err != nil {
		t.Fatal(err)
	}
	fixtures.Golden(t, "terminal/top.svg", svg)
}

// A screen of any size has its lines and no more, also without agents, and without an answer.
func TestSizes(t *testing.T) {
	for _, m := range []*model{{}, {broken: "no answer: connection refused"}, {by: byMemory}, {by: byQueue}} {
		if m.by != byAgent {
			minutes(m, true)
		}
		if m.by == byQueue {
			m.missing = "the machine b is not reached: what it has is missing here"
		}
		for width := 1; width < 300; width += 7 {
			for height := 1; height < 40; height += 3 {
				m.Update(tea.WindowSizeMsg{Width: width, Height: height})
				lines := m.screen()
				if len(lines) != height {
					t.Fatalf("%d lines at %d by %d", len(lines), width, height)
				}
				for _, line := range lines {
					if got := ansi.StringWidth(line); got > width {
						t.Fatalf("%d columns at %d by %d: %q", got, width, height, line)
					}
				}
			}
		}
	}
}

// What is shown is not taken for live while the server does not answer, and an old reminder says nothing.
func TestSilence(t *testing.T) {
	m := &model{}
	m.Update(tea.WindowSizeMsg{Width: 100, Height: 20})
	shows := func() bool {
		return strings.Contains(ansi.Strip(strings.Join(m.screen(), "\n")), "no answer: this is as it was")
	}
	m.Init()
	first := m.round
	if m.Update(sampled{}); shows() {
		t.Error("it has answered")
	}
	m.Update(due{m.round})
	if m.Update(silent{first}); shows() {
		t.Error("the server was silent before it answered")
	}
	if m.Update(silent{m.round}); !shows() {
		t.Error("it is not said that the server does not answer")
	}
	if m.Update(sampled{}); shows() {
		t.Error("it has answered again")
	}
}

// What is shown of a machine that is cut off is not taken for what is now, until it has answered with all others again.
func TestCutOff(t *testing.T) {
	m := &model{}
	m.Update(tea.WindowSizeMsg{Width: 160, Height: 20})
	for _, tt := range []struct {
		of   sampled
		want string
	}{
		{sampled{stale: "2026-01-02T03:04:05Z"}, "this may be old, as of 2026-01-02T03:04:05Z"},
		{sampled{unreached: []string{"b"}, stale: "never"}, "the machine b is not reached: what it has is missing here; the machine has not reached the others of its cluster since it started"},
		{sampled{}, ""},
	} {
		m.Update(tt.of)
		if shown := ansi.Strip(strings.Join(m.screen(), "\n")); !strings.Contains(shown, tt.want) || tt.want == "" && strings.Contains(shown, "the machine") {
			t.Errorf("%+v is not told:\n%s", tt.of, shown)
		}
	}
}

// panicky panics at a key.
type panicky struct{ *model }

func (p panicky) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	if key, ok := msg.(tea.KeyPressMsg); ok && key.String() == "x" {
		panic("as a test wants it")
	}
	_, cmd := p.model.Update(msg)
	return p, cmd
}

func (panicky) Init() tea.Cmd { return nil }

// A panic leaves the terminal as it was.
func TestPanic(t *testing.T) {
	keys, screen, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer keys.Close()
	defer screen.Close()
	state := func() unix.Termios {
		state, err := unix.IoctlGetTermios(int(screen.Fd()), unix.TCGETS)
		if err != nil {
			t.Fatal(err)
		}
		return *state
	}
	if err := pty.Setsize(keys, &pty.Winsize{Rows: 20, Cols: 80}); err != nil {
		t.Fatal(err)
	}
	before := state()
	k := terminal.NewKeyboard(screen)
	program := terminal.NewProgram(panicky{&model{}}, k, screen, []string{"TERM=xterm-256color"})
	ended := make(chan error, 1)
	go func() { ended <- program.Show(t.Context()) }()
	var raw strings.Builder
	read := func(until string) {
		t.Helper()
		buffer := make([]byte, 4096)
		for from := raw.Len(); !strings.Contains(raw.String()[from:], until); {
			n, err := keys.Read(buffer)
			if err != nil {
				t.Fatalf("%v before %q:\n%q", err, until, raw.String())
			}
			raw.Write(buffer[:n])
		}
	}
	read("no agents")
	if _, err := keys.WriteString("x"); err != nil {
		t.Fatal(err)
	}
	read("\x1b[?1049l")
	if err := <-ended; !errors.Is(err, tea.ErrProgramPanic) {
		t.Errorf("it ended with %v", err)
	}
	if after := state(); after != before {
		t.Errorf("the terminal was %+v and is %+v", before, after)
	}
	_ = screen.Close() // what was written is still there to be read
	rest, _ := io.ReadAll(keys)
	raw.Write(rest)
	if text := raw.String(); strings.LastIndex(text, "\x1b[?25l") > strings.LastIndex(text, "\x1b[?25h") {
		t.Error("the cursor is hidden")
	}
}
