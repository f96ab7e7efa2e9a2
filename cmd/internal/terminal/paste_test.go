package terminal

import (
	"fmt"
	"strings"
	"testing"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
)

// A pasted text is taken whole, however many rows of the screen it has, or refused whole with a sentence; the input is as it was then.
func TestLongPastes(t *testing.T) {
	var numbered strings.Builder
	for i := range 12_000 {
		fmt.Fprintf(&numbered, "n%d\n", i)
	}
	paragraph := strings.Repeat("x", 499_000)
	for _, one := range []struct{ name, before, text, want, says string }{
		{"one paragraph of many rows", "say ", paragraph, "say " + paragraph, ""},
		{"many lines", "", strings.Repeat("line\n", 9_999), strings.Repeat("line\n", 9_999), ""},
		{"too many lines", "say ", numbered.String(), "say ", "12001 lines"},
		{"too many lines of a terminal that sends CR", "say ", strings.ReplaceAll(numbered.String(), "\n", "\r"), "say ", "12001 lines"},
		{"too many with those before", "a\nb\nc", strings.Repeat("line\n", 9_999), "a\nb\nc", "10000 lines"},
		{"too many characters", "say ", paragraph + paragraph, "say ", "998000 characters"},
		{"too many characters with its tabs", "say ", strings.Repeat("\t", 200_000), "say ", "800000 characters"},
	} {
		t.Run(one.name, func(t *testing.T) {
			m := drawnTalk(t)
			m.input.SetValue(one.before)
			m.Update(tea.PasteMsg{Content: one.text})
			if got := m.input.Value(); got != one.want {
				t.Errorf("the input has %d characters, ending with %q; want %d", len(got), got[max(0, len(got)-20):], len(one.want))
			}
			said := strings.Join(strings.Fields(ansi.Strip(strings.Join(m.lines, " "))), " ")
			if strings.Contains(said, "too long, and nothing of it was taken") != (one.says != "") || !strings.Contains(said, one.says) {
				t.Errorf("said: %q", said)
			}
		})
	}
}

// Keys for which there is no room before there is somebody to talk to are told.
func TestTooManyKeysBeforeTheTalk(t *testing.T) {
	m := drawnTalk(t)
	m.t.agent, m.working = "", 1
	for range maxEarly + 2 {
		m.Update(tea.KeyPressMsg{Code: tea.KeyEnter})
	}
	m.t.agent = "a"
	m.Update(came{})
	if said := strings.Join(strings.Fields(ansi.Strip(strings.Join(m.lines, " "))), " "); !strings.Contains(said, "the last 2 keys were not taken") || m.working != 0 {
		t.Errorf("said: %q", said)
	}
}

// So is text of a terminal that does not mark what is pasted.
func TestLongTextOfKeys(t *testing.T) {
	m := drawnTalk(t)
	m.input.SetValue(strings.Repeat("x", maxInputChars-1))
	m.burst.gathering = true
	for _, k := range "yz" {
		m.Update(tea.KeyPressMsg{Code: k, Text: string(k)})
	}
	m.Update(gathered{})
	if said := strings.Join(strings.Fields(ansi.Strip(strings.Join(m.lines, " "))), " "); len(m.input.Value()) != maxInputChars-1 || !strings.Contains(said, "2 characters in 1 line,") {
		t.Errorf("the input has %d characters; said: %q", len(m.input.Value()), said)
	}
}
