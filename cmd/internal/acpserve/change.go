package acpserve

import (
	"path/filepath"
	"strings"

	"github.com/tidwall/gjson"

	"nexus.internal/cmd/internal/cli"
	"nexus.internal/protocol/safefile"
	"nexus.internal/protocol/textcut"
)

const (
	// maxShown bounds a text of a call that is shown, in bytes; of a longer one it is the beginning.
	maxShown = 64 << 10
	// maxDiff bounds each side of a diff, in bytes; a longer one is not shown as a diff.
	maxDiff = 96 << 10
	// maxDiffs is how many diffs are shown of one call.
	maxDiffs = 5
	// maxTitle bounds what a title has of a call's input, in characters.
	maxTitle = 120
	// maxSummary bounds the title of a question, in bytes.
	maxSummary = 512
)

// kindOf says in the words of the protocol what a tool does.
func kindOf(tool string) string {
	switch tool {
	case "read_file", "list_directory":
		return "read"
	case "edit_file", "write_file", "apply_patch", "copy_file":
		return "edit"
	case "delete_file":
		return "delete"
	case "move_file":
		return "move"
	case "glob", "search_text":
		return "search"
	case "shell", "job_input", "job_list", "job_output", "job_start", "job_stop":
		return "execute"
	case "web_fetch":
		return "fetch"
	}
	return "other"
}

// titleOf is a call in a line.
func titleOf(tool string, input []byte) string {
	about := cli.Harmless(cli.MainInput(input, maxTitle), true)
	if kindOf(tool) == "execute" && about != "" {
		return about
	}
	return strings.TrimRight(tool+" "+about, " ")
}

// locationsOf are the files that a call is about, as far as its input names them; dir is the agent's.
func locationsOf(input []byte, dir string) (all []location) {
	for _, member := range []string{"path", "from", "to"} {
		if value := gjson.GetBytes(input, member); value.Type == gjson.String && value.Str != "" {
			all = append(all, location{Path: absolute(value.Str, dir), Line: lineOf(input)})
		}
	}
	return all
}

// lineOf is the line at which read_file begins; 0 for none.
func lineOf(input []byte) uint64 {
	if offset := gjson.GetBytes(input, "offset"); offset.Type == gjson.Number && offset.Num >= 1 {
		return offset.Uint()
	}
	return 0
}

func absolute(path, dir string) string {
	if filepath.IsAbs(path) {
		return filepath.Clean(path)
	}
	return filepath.Join(dir, path)
}

// diffsOf are the changes that a call makes in files; nil for other tools, and for what is too
// long. replaced is what write_file overwrites; nil if that is not there or not known.
func diffsOf(tool string, raw []byte, dir string, replaced *string) (diffs []callContent) {
	input := gjson.ParseBytes(raw)
	path := absolute(input.Get("path").Str, dir)
	switch tool {
	case "edit_file":
		for _, edit := range append(input.Get("edits").Array(), input) {
			if old, added := edit.Get("old_text").Str, edit.Get("new_text").Str; old != "" || added != "" {
				diffs = append(diffs, diff(path, &old, added))
			}
		}
	case "write_file":
		content := input.Get("content").Str
		if replaced != nil && *replaced == content { // it was written before it could be read
			replaced = nil
		}
		diffs = append(diffs, diff(path, replaced, content))
	case "apply_patch":
		diffs = patched(input.Get("patch").Str, dir)
	}
	if len(diffs) > maxDiffs {
		diffs = diffs[:maxDiffs]
	}
	for _, d := range diffs {
		if len(*d.NewText) > maxDiff || d.OldText != nil && len(*d.OldText) > maxDiff {
			return nil
		}
	}
	return diffs
}

func diff(path string, old *string, added string) callContent {
	return callContent{Type: "diff", Path: path, OldText: old, NewText: &added}
}

// held is what a file of the agent's directory holds; nil if it is not there or cannot be shown.
func held(path, dir string) *string {
	if _, inside := safefile.Below(dir, path); !inside {
		return nil
	}
	data, err := safefile.Read(path, maxDiff)
	if err != nil {
		return nil
	}
	return new(strings.ToValidUTF8(string(data), "\uFFFD"))
}

// patched are the changes of a patch, of either form: of each file the lines of its hunks, one below
// the other. The agent alone says whether the patch is right.
func patched(patch, dir string) (diffs []callContent) {
	var old, added strings.Builder
	path, isNew := "", false
	unified := !strings.HasPrefix(strings.TrimSpace(patch), "*** Begin Patch")
	end := func() {
		if path == "" || old.Len() == 0 && added.Len() == 0 {
			return
		}
		before := new(old.String())
		if isNew {
			before = nil
		}
		diffs = append(diffs, diff(absolute(path, dir), before, added.String()))
	}
	begin := func(file string) {
		end()
		old.Reset()
		added.Reset()
		path, isNew = strings.TrimSpace(file), false
	}
	for line := range strings.Lines(patch) {
		text := strings.TrimRight(line, "\r\n")
		if file, ok := strings.CutPrefix(text, "*** Update File: "); ok {
			begin(file)
		} else if file, ok := strings.CutPrefix(text, "*** Add File: "); ok {
			begin(file)
			isNew = true
		} else if file, ok := strings.CutPrefix(text, "--- "); ok && unified {
			begin(strings.TrimPrefix(file, "a/"))
			isNew = path == "/dev/null"
		} else if file, ok := strings.CutPrefix(text, "+++ "); ok && unified {
			if path = strings.TrimPrefix(strings.TrimSpace(file), "b/"); path == "/dev/null" {
				path = ""
			}
		} else if strings.HasPrefix(text, "***") || strings.HasPrefix(text, "@@") || path == "" || text == "" {
			continue
		} else if text[0] == '-' {
			old.WriteString(text[1:] + "\n")
		} else if text[0] == '+' {
			added.WriteString(text[1:] + "\n")
		} else if text[0] == ' ' {
			old.WriteString(text[1:] + "\n")
			added.WriteString(text[1:] + "\n")
		}
	}
	end()
	return diffs
}

// planOf is the list of the tool todo; nil if its call only shows it.
func planOf(input []byte) []planEntry {
	items := gjson.GetBytes(input, "items")
	if !items.IsArray() {
		return nil
	}
	entries := []planEntry{}
	for _, item := range items.Array() {
		status := item.Get("status").Str
		if status == "done" {
			status = "completed"
		}
		entries = append(entries, planEntry{Content: item.Get("text").Str, Priority: "medium", Status: status})
	}
	return entries
}

// verbatim is whole lines for editors, which take a text for Markdown: that would hide comments, and where links lead.
func verbatim(lines string) string {
	longest, run := 2, 0
	for _, r := range lines {
		if run++; r != '`' {
			run = 0
		}
		longest = max(longest, run)
	}
	fence := strings.Repeat("`", longest+1)
	return fence + "\n" + lines + fence
}

// shown is a text of a call as content.
func shown(text string) []callContent {
	if text == "" {
		return nil
	}
	if len(text) > maxShown {
		text = textcut.Head(text, maxShown) + "\n… (the agent has more of it)"
	}
	return []callContent{{Type: "content", Content: new(textBlock(text))}}
}
