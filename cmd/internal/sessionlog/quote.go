package sessionlog

import "strings"

// quoted is text as a quotation: no line of it looks like one of the log, and what it opens, such as a fence, ends with it.
func quoted(text string) string {
	var out strings.Builder
	for line := range strings.Lines(text) {
		out.WriteByte('>')
		if line != "\n" {
			out.WriteByte(' ')
		}
		out.WriteString(line)
	}
	return out.String()
}

// withoutTags is Markdown in which nothing is a tag of HTML, which could end a quotation: what would begin one has
// a backslash before it, except in code, where it would be seen. Where it is not sure that something is code, it counts as none.
func withoutTags(text string) string {
	var out strings.Builder
	var c code
	for line := range strings.Lines(text) {
		c.line(&out, line)
	}
	return out.String()
}

// withoutTagsInLine is withoutTags for a part of a line.
func withoutTagsInLine(text string) string {
	var out strings.Builder
	escapeTags(&out, text)
	return out.String()
}

// code follows the code in Markdown, line by line. The zero value is the beginning of a text.
type code struct {
	fence    string // that is open; "" for none
	unsure   bool   // whether a fence is open, from here on
	unpaired bool   // the paragraph has backquotes that may begin a span which goes on in a later line
}

// blank are the characters of a blank line.
const blank = " \t\n"

// line appends a line, without tags where it is not code.
func (c *code) line(out *strings.Builder, line string) {
	indented := strings.TrimLeft(line, " \t")
	run := ""
	for _, mark := range []byte("`~") {
		if n := runOf(indented, mark); n >= 3 {
			run = indented[:n]
		}
	}
	rest := strings.Trim(indented[len(run):], blank)
	// A fence in a list ends where the list does, and with a | it may be the head of a table.
	c.unsure = c.unsure || run != "" && (len(indented) != len(line) || c.fence == "" && strings.ContainsAny(rest, "`|"))
	switch {
	case c.unsure:
	case c.fence != "":
		if rest == "" && run != "" && strings.HasPrefix(run, c.fence) {
			c.fence = ""
		}
		out.WriteString(line)
		return
	case run != "":
		c.fence, c.unpaired = run, false
		out.WriteString(line)
		return
	}
	if strings.Trim(line, blank) == "" {
		c.unpaired = false
	}
	c.spans(out, line)
}

// spans appends a line that is in no fence. A span counts as code if it ends in its line, and no earlier one in the
// paragraph may go on there.
func (c *code) spans(out *strings.Builder, line string) {
	table := strings.Contains(line, "|") // a span ends with its cell
	c.unpaired = c.unpaired || strings.Contains(line, "\\`") || linksCode(line)
	for !c.unpaired {
		at := strings.IndexByte(line, '`')
		if at < 0 {
			break
		}
		end := spanEnd(line, at)
		if end < 0 {
			c.unpaired = true
			break
		}
		escapeTags(out, line[:at])
		if table {
			escapeTags(out, line[at:end])
		} else {
			out.WriteString(line[at:end])
		}
		line = line[end:]
	}
	escapeTags(out, line)
}

// linksCode reports whether a backquote of a line, or of the next one, may be of the address of a link, where it begins no code.
func linksCode(line string) bool {
	for _, begin := range []string{"](", "][", "[^"} {
		for rest := line; ; {
			_, after, found := strings.Cut(rest, begin)
			if !found {
				break
			}
			end := strings.IndexAny(after, ")]`\"'([<\\\n")
			if end < 0 || after[end] != ')' && after[end] != ']' {
				return true
			}
			rest = after[end:]
		}
	}
	return false
}

// spanEnd is where the span of code that begins at an offset of a line ends; -1 if not in that line.
func spanEnd(line string, at int) int {
	n := runOf(line[at:], '`')
	for end := at + n; ; {
		next := strings.IndexByte(line[end:], '`')
		if next < 0 {
			return -1
		}
		end += next
		run := runOf(line[end:], '`')
		end += run
		if run == n {
			return end
		}
	}
}

// runOf is how often a character stands at the beginning of text.
func runOf(text string, mark byte) int {
	return len(text) - len(strings.TrimLeft(text, string(mark)))
}

// escapeTags appends text with a backslash before what begins a tag and has none.
func escapeTags(out *strings.Builder, text string) {
	escaped := false
	for i := range len(text) {
		if text[i] == '<' && !escaped && i+1 < len(text) && beginsTag(text[i+1]) {
			out.WriteByte('\\')
		}
		escaped = text[i] == '\\' && !escaped
		out.WriteByte(text[i])
	}
}

// beginsTag is true for what stands behind the < of a tag, a comment or an address.
func beginsTag(b byte) bool {
	return 'a' <= b|0x20 && b|0x20 <= 'z' || b == '/' || b == '!' || b == '?'
}
