package terminal

import (
	"fmt"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"nexus.internal/bridge/api"
)

// On a low screen the lobby has its options, and the list of saved sessions its newest ones and how many more there are; each of these is
// chosen by its name. What changes loses its top where it has no room, and there the newest ones were.
func TestTheLobbyOnALowScreen(t *testing.T) {
	var saved []api.SavedSession
	for i := range 30 {
		saved = append(saved, api.SavedSession{Name: fmt.Sprintf("s%02d", i), MessageCount: 2})
	}
	now := time.UnixMilli(1000)
	for _, c := range []struct {
		width, height int
		lobby, list   string
	}{
		{20, 10, "  1) Resume: s00 (j…\n  2) Fresh session\n  3) Choose from sa…\n[1/2/3, q to leave]:\n>", "   1) s00 (just now…\n   2) s01 (just now…\n   … 28 more: type …\nnumber or name, q t…\n>"},
		{80, 12, "nexus\n  1) Resume: s00 (just now, 2 messages)\n  2) Fresh session\n", "   4) s03 (just now, 2 messages)\n   … 26 more: type a name\nnumber or name, q to leave:\n>"},
		{80, 24, "nexus\n\n  1) Resume", "  12) s11 (just now, 2 messages)\n   … 18 more: type a name\nnumber or name, q to leave:\n>"},
		{80, 50, "nexus\n\n  1) Resume", "  20) s19 (just now, 2 messages)\n   … 10 more: type a name\n\nnumber or name, q to leave:\n>"},
	} {
		m := drawnTalk(t)
		m.t.agent = ""
		m.Update(tea.WindowSizeMsg{Width: c.width, Height: c.height})
		shown := func() string {
			lines := strings.Split(ansi.Strip(m.View().Content), "\n")
			for i := range lines {
				lines[i] = strings.TrimRight(lines[i], " ")
			}
			return strings.Join(lines, "\n")
		}
		m.Update(lobbyOf(m.t, &saved[0], saved, now))
		if got := shown(); !strings.HasPrefix(got, c.lobby) {
			t.Errorf("%d×%d: the lobby is\n%s", c.width, c.height, got)
		}
		m.Update(chooseOf(m.t, saved, now))
		if got := shown(); !strings.HasPrefix(got, "   1) s00") || !strings.Contains(got, c.list) {
			t.Errorf("%d×%d: the list is\n%s", c.width, c.height, got)
		}
	}
	for choice, want := range map[string]string{"1": "s00", "20": "s19", "21": "", "s29": "s29", "": ""} {
		if got := chosenOf(saved, choice); got != want {
			t.Errorf("%q chooses %q, want %q", choice, got, want)
		}
	}
}
