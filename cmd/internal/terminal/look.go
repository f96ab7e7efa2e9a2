package terminal

import (
	"fmt"
	"strings"
	"time"

	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/x/ansi"
	"github.com/tidwall/gjson"

	"nexus.internal/cmd/internal/cli"
	"nexus.internal/protocol"
)

// look is how things are shown: in lines of the terminal's width. With plain there are no
// styles, and no signs that a screen reader would spell.
type look struct {
	width   int // columns; 0 breaks no lines
	plain   bool
	verbose bool // calls are shown whole
	// colourless shows styles without their colours: what is printed above what changes comes to the terminal
	// as it is.
	colourless bool
}

var (
	dim    = lipgloss.NewStyle().Faint(true)
	bold   = lipgloss.NewStyle().Bold(true)
	red    = lipgloss.NewStyle().Foreground(lipgloss.Red)
	green  = lipgloss.NewStyle().Foreground(lipgloss.Green)
	yellow = lipgloss.NewStyle().Foreground(lipgloss.Yellow)
	cyan   = lipgloss.NewStyle().Foreground(lipgloss.Cyan)
)

// style gives each line a style, unless plain.
func (l look) style(s lipgloss.Style, text string) string {
	if l.plain || text == "" {
		return text
	}
	if l.colourless {
		s = s.UnsetForeground()
	}
	return s.Render(text)
}

// wrap breaks text into lines.
func (l look) wrap(text string, indent string) []string {
	if text == "" {
		return nil
	}
	text = strings.ReplaceAll(text, "\t", "    ")
	if l.width > 0 {
		text = ansi.Wrap(text, max(10, l.width-len(indent)), "")
	}
	lines := strings.Split(text, "\n")
	for i := range lines {
		lines[i] = indent + lines[i]
	}
	return lines
}

// lines wraps foreign text, in a style, a little to the right.
func (l look) lines(s lipgloss.Style, text string) []string {
	lines := l.wrap(cli.Harmless(text, false), "  ")
	for i := range lines {
		lines[i] = l.style(s, lines[i])
	}
	return lines
}

// note is a line of ours about what happens; what is foreign in it is harmless already.
func (l look) note(text string) string { return strings.Join(l.styled(dim, "· "+text), "\n") }

func (l look) problem(text string) string { return strings.Join(l.styled(red, "! "+text), "\n") }

func (l look) styled(s lipgloss.Style, text string) []string {
	lines := l.wrap(text, "")
	for i := range lines {
		lines[i] = l.style(s, lines[i])
	}
	return lines
}

// asked is what a person has said.
func (l look) asked(by, text string) []string {
	lines := l.wrap(cli.Harmless(strings.TrimRight(text, "\n"), false), "")
	for i := range lines {
		if i == 0 {
			lines[i] = by + "> " + lines[i]
		} else {
			lines[i] = strings.Repeat(" ", len(by)+2) + lines[i]
		}
		lines[i] = l.style(bold, lines[i])
	}
	return append([]string{""}, lines...)
}

func (l look) thought(text string) []string { return l.lines(dim, strings.TrimRight(text, "\n")) }

// answer shows Markdown: headings, code, emphasis and lists.
func (l look) answer(text string) []string {
	text = strings.TrimRight(text, "\n")
	if text == "" {
		return nil
	}
	text = cli.Harmless(text, false)
	if l.plain {
		return l.wrap(text, "")
	}
	var out []string
	fenced := false
	for line := range strings.SplitSeq(text, "\n") {
		trimmed := strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(trimmed, "```"):
			fenced = !fenced
			out = append(out, l.style(dim, line))
		case fenced:
			for _, part := range l.wrap(line, "") {
				out = append(out, l.style(cyan, part))
			}
			if line == "" {
				out = append(out, "")
			}
		case line == "":
			out = append(out, "")
		case strings.HasPrefix(trimmed, "#"):
			out = append(out, l.styled(bold, strings.TrimSpace(strings.TrimLeft(trimmed, "#")))...)
		default:
			out = append(out, l.wrap(l.emphasis(line), "")...)
		}
	}
	return out
}

// emphasis gives **text** and `text` their styles.
func (l look) emphasis(line string) string {
	for _, e := range []struct {
		mark  string
		style lipgloss.Style
	}{{"`", cyan}, {"**", bold}} {
		var b strings.Builder
		for {
			before, rest, ok := strings.Cut(line, e.mark)
			inner, after, closed := strings.Cut(rest, e.mark)
			if !ok || !closed || strings.TrimSpace(inner) == "" {
				break
			}
			b.WriteString(before + l.style(e.style, inner))
			line = after
		}
		line = b.String() + line
	}
	return line
}

// inputOf is the member of a call's input that tells most, on one line.
func inputOf(tool string, input []byte) string {
	for _, member := range []string{"command", "path", "pattern", "url", "agent_id", "job", "to", "query", "text"} {
		if value := gjson.GetBytes(input, member); value.Type == gjson.String && value.Str != "" {
			return cli.Harmless(value.Str, true)
		}
	}
	if tool == "todo" || len(input) <= len("{}") {
		return ""
	}
	return cli.Harmless(string(input), true)
}

// head is the line of a call.
func (l look) head(sign string, s lipgloss.Style, c *call, after string) string {
	name := cli.Harmless(c.name, true)
	room := l.width - ansi.StringWidth(sign+name+after) - 2
	input := c.input
	if l.width > 0 {
		input = ansi.Truncate(input, max(0, room), "…")
	}
	return strings.TrimRight(l.style(s, sign)+l.style(bold, name)+" "+input+l.style(dim, after), " ")
}

// running is a call that runs, with the end of what it has put out.
func (l look) running(c *call, since time.Duration) []string {
	after := ""
	if since >= 0 {
		after = fmt.Sprintf(" %.0f s", since.Seconds())
	}
	lines := []string{l.head("○ ", yellow, c, after)}
	output := l.lines(dim, strings.TrimRight(c.output, "\n"))
	return append(lines, output[max(0, len(output)-shownOutput):]...)
}

// sign is what stands before a call; a word for a screen reader.
func (l look) sign(s string) string {
	if l.plain {
		return "tool "
	}
	return s
}

// called is a call that has ended: a line, and the beginning of its result, or the change that it
// made. folded reports whether there is more.
func (l look) called(c *call, took time.Duration, e protocol.ToolcallResult) (lines []string, folded bool) {
	lines = l.ended(c, took, e.IsError)
	if change := l.change(c, maxChange); change != nil && !e.IsError {
		return append(lines, change...), len(change) > maxChange
	}
	result := l.lines(dim, strings.TrimRight(e.Result, "\n"))
	if more := len(result) - shownResult; more > 1 {
		return append(append(lines, result[:shownResult]...), l.style(dim, fmt.Sprintf("  … %s more", cli.Counted(more, "line")))), true
	}
	return append(lines, result...), false
}

// whole is a call that has ended, with its input, and all of its result.
func (l look) whole(c *call, took time.Duration, e protocol.ToolcallResult) []string {
	lines := l.ended(c, took, e.IsError)
	if change := l.change(c, len(c.raw)); change != nil {
		lines = append(lines, change...)
	} else if command := gjson.GetBytes(c.raw, "command"); command.Type == gjson.String {
		lines = append(lines, l.lines(lipgloss.NewStyle(), command.Str)...)
	} else {
		lines = append(lines, l.lines(lipgloss.NewStyle(), string(c.raw))...)
	}
	return append(lines, l.lines(dim, strings.TrimRight(e.Result, "\n"))...)
}

// ended is the line of a call that has ended.
func (l look) ended(c *call, took time.Duration, failed bool) []string {
	sign, s, word := "● ", green, ""
	if failed {
		sign, s, word = "✗ ", red, " failed"
	}
	if took >= 0 { // else it began before we came
		word += fmt.Sprintf(" (%.1f s)", took.Seconds())
	}
	return []string{l.head(l.sign(sign), s, c, word)}
}

// change is what a call changed in files, as at most so many lines that begin with + and -, and one
// that says that there are more; nil for other tools.
func (l look) change(c *call, most int) []string {
	var old, added string
	switch input := gjson.ParseBytes(c.raw); c.name {
	case "edit_file":
		for _, edit := range append(input.Get("edits").Array(), input) {
			old += whole(edit.Get("old_text").Str)
			added += whole(edit.Get("new_text").Str)
		}
	case "write_file":
		added = input.Get("content").Str
	case "apply_patch":
		return l.patch(input.Get("patch").Str, most)
	default:
		return nil
	}
	return l.patch(prefixed("-", old)+prefixed("+", added), most)
}

func whole(text string) string {
	if text == "" || strings.HasSuffix(text, "\n") {
		return text
	}
	return text + "\n"
}

func prefixed(mark, text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteString(mark + whole(line))
	}
	return b.String()
}

// maxChange is how many lines of a change are shown.
const maxChange = 40

// patch shows the lines of a patch by their first characters.
func (l look) patch(text string, most int) []string {
	if text == "" {
		return nil
	}
	var out []string
	for line := range strings.SplitSeq(strings.TrimRight(text, "\n"), "\n") {
		if len(out) >= most {
			return append(out[:most], l.style(dim, "  …"))
		}
		s := lipgloss.NewStyle()
		switch {
		case strings.HasPrefix(line, "+"):
			s = green
		case strings.HasPrefix(line, "-"):
			s = red
		case strings.HasPrefix(line, "@@"), strings.HasPrefix(line, "***"):
			s = cyan
		}
		out = append(out, l.lines(s, line)...)
	}
	return out
}
