package terminal

import (
	"path/filepath"
	"slices"
	"strings"

	tea "charm.land/bubbletea/v2"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/client"
	"nexus.internal/protocol/safefile"
)

// maxChoices is how many completions are shown, and maxEntries how many entries of a directory
// are looked at.
const (
	maxChoices = 30
	maxEntries = 10_000
)

// completionsOf are what a word of the input may become.
type completions struct {
	input, word string
	choices     []string
}

// completing looks for what the last word of the input may become.
func (m *model) completing() tea.Cmd {
	input := m.input.Value()
	word := input[strings.LastIndexAny(input, " \n")+1:]
	t, agent := m.t, m.t.agent
	return func() tea.Msg { return completions{input, word, completionsOf(t, agent, input, word)} }
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
		if !strings.HasPrefix(name, base) || strings.HasPrefix(name, ".") && base == "" || strings.ContainsAny(name, " \n") {
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
		for !strings.HasPrefix(choice, common) {
			common = common[:len(common)-1]
		}
	}
	if len(c.choices) == 1 && !strings.HasSuffix(common, "/") {
		common += " "
	}
	m.input.SetValue(strings.TrimSuffix(c.input, c.word) + common)
	if m.choices = nil; len(c.choices) > 1 {
		m.choices = c.choices[:min(len(c.choices), maxChoices)]
	}
}
