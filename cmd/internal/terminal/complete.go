package terminal

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	tea "charm.land/bubbletea/v2"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/client"
	"nexus.internal/protocol/safefile"
	"nexus.internal/protocol/shellword"
)

// maxChoices is how many completions are shown, and maxEntries how many entries of a directory
// are looked at.
const (
	maxChoices = 30
	maxEntries = 10_000
)

// completions are what the last word of the input may become.
type completions struct {
	input   string
	start   int // of the word, in bytes
	choices []string
}

// completing looks for what the last word of the input may become.
func (m *model) completing() tea.Cmd {
	input := m.input.Value()
	word := lastWord(input)
	t, agent := m.t, m.t.agent
	return func() tea.Msg { return completions{input, word.Start, completionsOf(t, agent, input, word.Text)} }
}

// lastMention is the mention of a file at the end of a message.
var lastMention = regexp.MustCompile(`(?:^|[\s\p{Z}])(@(?:"[^"\n]*|'[^'\n]*|(?:\\.|[^\s\p{Z}])*))$`)

// lastWord is the last word of the input, which may have no end yet, without its quotes.
func lastWord(input string) shellword.Word {
	const more = "x" // so that there is one, and it is the last
	line, start := input, 0
	if !strings.HasPrefix(input, "/") {
		at := lastMention.FindStringSubmatchIndex(input)
		if at == nil {
			return shellword.Word{Start: len(input)}
		}
		line, start = input[at[2]:], at[2]
	}
	words, _ := shellword.Read(line + more)
	last := words[len(words)-1]
	return shellword.Word{Text: strings.TrimSuffix(last.Text, more), Start: start + last.Start}
}

// completionsOf are what a word may become: a command, a file after @, or a name after a command.
func completionsOf(t *talk, agent, input, word string) (choices []string) {
	switch {
	case strings.HasPrefix(word, "@"):
		return files(t.o.Cwd, "@", word)
	case strings.HasPrefix(input, "/") && word == input:
		for _, name := range names() {
			choices = append(choices, "/"+name)
		}
	case strings.HasPrefix(input, "/model ") && agent != "":
		if all, err := client.Do(t.ctx, t.c, agent, api.ListModels, api.None{}); err == nil {
			for _, model := range all.Models {
				choices = append(choices, model.ModelID)
			}
		}
	case strings.HasPrefix(input, "/permissions "):
		choices = []string{"trusted", "sandboxed"}
	case strings.HasPrefix(input, "/help "):
		choices = names()
	case strings.HasPrefix(input, "/cwd "), strings.HasPrefix(input, "/prompt "), strings.HasPrefix(input, "/plan "):
		return files(t.o.Cwd, "", word)
	case strings.HasPrefix(input, "/load "), strings.HasPrefix(input, "/delete "):
		choices = t.chat.sessionNames()
	case strings.HasPrefix(input, "/agent "), strings.HasPrefix(input, "/whisper "), strings.HasPrefix(input, "/send "),
		strings.HasPrefix(input, "/clone "), strings.HasPrefix(input, "/rename "):
		choices = append(t.chat.agentNames(), t.chat.sessionNames()...)
	case strings.HasPrefix(input, "/"):
		choices = t.chat.agentNames()
	}
	slices.Sort(choices)
	return slices.DeleteFunc(slices.Compact(choices), func(c string) bool { return !strings.HasPrefix(c, word) })
}

func (c *chat) sessionNames() (names []string) {
	if all, err := client.Do(c.ctx, c.c, "", api.ListSessions, api.ListSessionsParams{Limit: new(uint64(api.MaxSessions))}); err == nil {
		for _, s := range all.Sessions {
			names = append(names, s.Name)
		}
	}
	return names
}

func (c *chat) agentNames() (names []string) {
	if all, err := client.Do(c.ctx, c.c, "", api.ListAgents, api.None{}); err == nil {
		for _, a := range all.Agents {
			names = append(names, a.AgentID)
		}
	}
	return names
}

// files are the paths that the beginning of one, behind a mark, may become.
func files(cwd, mark, word string) (choices []string) {
	typed := strings.TrimPrefix(word, mark)
	dir, base := filepath.Split(typed)
	f, err := safefile.OpenDir(resolved(cwd, dir)) // which waits for no pipe
	if err != nil {
		return nil
	}
	defer f.Close()
	entries, _ := f.ReadDir(maxEntries)
	for _, entry := range entries {
		name := entry.Name()
		if !strings.HasPrefix(name, base) || strings.HasPrefix(name, ".") && base == "" || strings.ContainsFunc(name, unicode.IsControl) {
			continue
		}
		if entry.IsDir() {
			name += "/"
		}
		choices = append(choices, mark+dir+name)
	}
	slices.Sort(choices)
	return choices
}

// complete puts what all choices begin with into the input; several are shown.
func (m *model) complete(c completions) {
	if m.input.Value() != c.input || len(c.choices) == 0 {
		return // it was typed on
	}
	common := c.choices[0]
	for _, choice := range c.choices {
		for !strings.HasPrefix(choice, common) || !utf8.ValidString(common) {
			common = common[:len(common)-1]
		}
	}
	text := written(common)
	if len(c.choices) == 1 && !strings.HasSuffix(text, "/") {
		text += " "
	}
	m.input.SetValue(c.input[:c.start] + text)
	if m.choices = nil; len(c.choices) > 1 {
		for _, choice := range c.choices[:min(len(c.choices), maxChoices)] {
			m.choices = append(m.choices, written(choice))
		}
	}
}

// written is a word as it is typed: with a backslash before what would end it.
func written(word string) string {
	if rest, ok := strings.CutPrefix(word, "~/"); ok {
		return "~/" + shellword.Escape(rest)
	}
	return shellword.Escape(word)
}
