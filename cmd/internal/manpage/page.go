package manpage

import (
	"fmt"
	"strings"

	"github.com/spf13/pflag"
)

// Page is a page of section 1. Its texts are plain: an empty line separates paragraphs, and lines
// that are indented by two blanks stand as they are.
type Page struct {
	Program  string
	Summary  string   // one line, as "Calls a nexus server"
	Synopsis []string // command lines
	About    string
	Flags    *pflag.FlagSet
	Verbs    []Verb
	Also     []Section // behind the verbs
}

// Verb is a verb of a program.
type Verb struct {
	Use   string // with the arguments, as in "keys revoke KEY_ID"
	About string
	Flags *pflag.FlagSet
}

// Section is a further section of a page: a text, entries, or both.
type Section struct {
	Title   string // in capitals
	About   string
	Entries []Entry
}

// Entry is a word and what it means.
type Entry struct{ Word, About string }

// Render is a page in roff, for man(1).
func Render(p Page) string {
	var w writer
	w.macro("TH", strings.ToUpper(p.Program), "1", "", "nexus", "User Commands")
	w.WriteString(".ad l\n") // blanks are not stretched
	w.macro("SH", "NAME")
	w.line(plain(p.Program) + ` \- ` + plain(strings.ToLower(p.Summary[:1])+p.Summary[1:]))
	w.macro("SH", "SYNOPSIS")
	for i, use := range p.Synopsis {
		if i > 0 {
			w.macro("br")
		}
		w.line(command(use))
	}
	w.macro("SH", "DESCRIPTION")
	w.text(p.About)
	if p.Flags.HasAvailableFlags() {
		w.macro("SH", "OPTIONS")
		w.flags(p.Flags)
	}
	if len(p.Verbs) > 0 {
		w.macro("SH", "VERBS")
	}
	for _, verb := range p.Verbs {
		w.macro("SS", verb.Use)
		w.text(verb.About)
		w.flags(verb.Flags)
	}
	for _, s := range p.Also {
		w.macro("SH", s.Title)
		w.text(s.About)
		for _, e := range s.Entries {
			w.macro("TP")
			w.line(bold(e.Word))
			w.text(e.About)
		}
	}
	return w.String()
}

// writer collects lines of roff.
type writer struct{ strings.Builder }

func (w *writer) line(text string) {
	if strings.HasPrefix(text, ".") || strings.HasPrefix(text, "'") { // it would be a request
		text = `\&` + text
	}
	w.WriteString(text + "\n")
}

func (w *writer) macro(name string, args ...string) {
	w.WriteString("." + name)
	for _, arg := range args {
		w.WriteString(` "` + strings.ReplaceAll(plain(arg), `"`, `\(dq`) + `"`)
	}
	w.WriteByte('\n')
}

// text writes a text: lines that are indented stand as they are, others are filled.
func (w *writer) text(text string) {
	example, begun := false, false
	end := func() {
		if example {
			w.WriteString(".RE\n.fi\n")
		}
		example = false
	}
	for line := range strings.Lines(strings.Trim(text, "\n")) {
		line = strings.TrimRight(line, "\n")
		switch indented := strings.HasPrefix(line, "  "); {
		case line == "":
			end()
			begun = false
			w.WriteString(".PP\n")
			continue
		case indented && !example:
			if begun {
				w.WriteString(".PP\n")
			}
			w.WriteString(".nf\n.RS\n")
			example = true
		case !indented && example:
			end()
			w.WriteString(".PP\n")
		}
		begun = true
		if example {
			line = strings.TrimPrefix(line, "  ")
		}
		w.line(plain(line))
	}
	end()
}

// flags writes flags, each with its value, its meaning and its default.
func (w *writer) flags(set *pflag.FlagSet) {
	set.VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		value, usage := pflag.UnquoteUsage(f)
		name := bold("--" + f.Name)
		if f.Shorthand != "" {
			name = bold("-"+f.Shorthand) + ", " + name
		}
		switch {
		case value != "" && f.NoOptDefVal != "":
			name += "[=" + italic(value) + "]"
		case value != "":
			name += " " + italic(value)
		}
		w.macro("TP")
		w.line(name)
		w.text(usage + standard(f, usage))
	})
}

// standard is the default of a flag as its usage ends, where that is more than nothing and the
// usage does not say it.
func standard(f *pflag.Flag, usage string) string {
	switch f.DefValue {
	case "", "false", "0", "0s", "[]":
		return ""
	}
	if strings.Contains(usage, "default") {
		return ""
	}
	return fmt.Sprintf(" (default %s)", f.DefValue)
}

// command is a command line: what is typed as it stands is bold, the rest is not.
func command(use string) string {
	words := strings.Fields(use)
	for i, word := range words {
		if word == strings.ToLower(word) && !strings.ContainsAny(word, "[]…") {
			words[i] = bold(word)
		} else {
			words[i] = italic(word)
		}
	}
	return strings.Join(words, " ")
}

func bold(text string) string   { return `\fB` + plain(text) + `\fR` }
func italic(text string) string { return `\fI` + plain(text) + `\fR` }

// plain is text that roff prints as it is: a hyphen stays one that can be copied.
func plain(text string) string { return escapes.Replace(text) }

var escapes = strings.NewReplacer(`\`, `\e`, "-", `\-`, "'", `\(aq`, "`", `\(ga`, "^", `\(ha`, "~", `\(ti`, "…", `...`)
