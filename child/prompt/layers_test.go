package prompt_test

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"nexus.internal/child/prompt"
)

// tree makes files below a new directory.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// The layers of a project are those from the nearest .git down to the working
// directory.
func TestLayers(t *testing.T) {
	const prevail = " (they prevail over those above)\n\n"
	dir := tree(t, map[string]string{
		"NEXUS.md": "above", "repo/.git/HEAD": "", "repo/NEXUS.md": "top", "repo/a/b/NEXUS.md": "deep", "repo/c/NEXUS.md": " \n",
		"tree/.git": "gitdir: elsewhere", "tree/NEXUS.md": "worktree", "tree/sub/file": "",
		"others/.git/HEAD": "", "others/CLAUDE.md": "claude", "others/AGENTS.md": "agents", "others/NEXUS.md": "nexus",
		"others/link/docs/agents.md": "linked", "others/copy/CLAUDE.md": "same", "others/copy/AGENTS.md": "same",
	})
	if err := os.Symlink("docs/agents.md", dir+"/others/link/CLAUDE.md"); err != nil {
		t.Fatal(err)
	}
	home := tree(t, map[string]string{"NEXUS.md": "personal", "x/file": ""})
	tests := []struct {
		name, home, cwd, text string
		layers                []string
	}{
		{"at the root", "", dir + "/repo", "top", []string{dir + "/repo/NEXUS.md"}},
		{"below it", "", dir + "/repo/a/b", "top\n\n# Instructions for a/b" + prevail + "deep", []string{dir + "/repo/NEXUS.md", dir + "/repo/a/b/NEXUS.md"}},
		{"between", "", dir + "/repo/a", "top", []string{dir + "/repo/NEXUS.md"}},
		{"an empty one is none", "", dir + "/repo/c", "top", []string{dir + "/repo/NEXUS.md"}},
		{"a worktree has a file .git", "", dir + "/tree/sub", "worktree", []string{dir + "/tree/NEXUS.md"}},
		{"no project: the directory alone", "", dir, "above", []string{dir + "/NEXUS.md"}},
		{"nothing above it", "", home + "/x", prompt.Default, nil},
		{"the personal one first", home, dir + "/repo", "personal\n\n# Instructions of this project" + prevail + "top", []string{home + "/NEXUS.md", dir + "/repo/NEXUS.md"}},
		{"and once", home, home, "personal", []string{home + "/NEXUS.md"}},
		{
			"what other agents read, and ours last", "", dir + "/others",
			"claude\n\n# Instructions of this project" + prevail + "agents\n\n# Instructions of this project" + prevail + "nexus",
			[]string{dir + "/others/CLAUDE.md", dir + "/others/AGENTS.md", dir + "/others/NEXUS.md"},
		},
		{
			"a copy counts once", "", dir + "/others/copy",
			"claude\n\n# Instructions of this project" + prevail + "agents\n\n# Instructions of this project" + prevail +
				"nexus\n\n# Instructions for copy" + prevail + "same",
			[]string{dir + "/others/CLAUDE.md", dir + "/others/AGENTS.md", dir + "/others/NEXUS.md", dir + "/others/copy/CLAUDE.md"},
		},
		{
			"a link to what is below its directory", "", dir + "/others/link",
			"claude\n\n# Instructions of this project" + prevail + "agents\n\n# Instructions of this project" + prevail +
				"nexus\n\n# Instructions for link" + prevail + "linked",
			[]string{dir + "/others/CLAUDE.md", dir + "/others/AGENTS.md", dir + "/others/NEXUS.md", dir + "/others/link/CLAUDE.md"},
		},
		{"a directory that is not there", home, dir + "/none", "personal", []string{home + "/NEXUS.md"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := prompt.Load(prompt.Options{Home: tt.home, Cwd: tt.cwd})
			if err != nil {
				t.Fatal(err)
			}
			want := prompt.Prompt{Text: tt.text, Layers: tt.layers}
			if len(tt.layers) > 0 {
				want.Path = tt.layers[len(tt.layers)-1]
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestWith(t *testing.T) {
	around := prompt.Surroundings{
		Cwd: "/srv/work", Now: time.Date(2026, 1, 2, 23, 59, 0, 0, time.UTC),
		Notes: []prompt.Note{{Title: "state branch", Text: `{"value":"main"}`}},
	}
	environment := "# Environment\n\nWorking directory: /srv/work\nPlatform: " + runtime.GOOS + "/" + runtime.GOARCH + "\nToday: 2026-01-02"
	context := "# Context\n\nThe program that runs you wants you to know, as of now:\n\n## state branch\n\n{\"value\":\"main\"}"
	for _, tt := range []struct {
		p    prompt.Prompt
		want string
	}{
		{prompt.Prompt{Text: "base"}, "base\n\n" + environment + "\n\n" + context},
		{prompt.Prompt{Text: "base", Explicit: true}, "base\n\n" + context},
		{prompt.Prompt{Explicit: true}, context},
	} {
		if diff := cmp.Diff(tt.want, tt.p.With(around)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	if got := (prompt.Prompt{Explicit: true}).With(prompt.Surroundings{}); got != "" {
		t.Errorf("nothing became %q", got)
	}
}
