package cli

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"

	"nexus.internal/cmd/internal/progress"
)

// printer writes what verbs have to say: their answers to stdout, as text or as values,
// and notes to stderr. It is safe for concurrent use.
type printer struct {
	name      string      // of the program
	slash     bool        // which is not said: Options.Slash
	format    string      // --output
	names     string      // where the names are in the values of the verb that runs (namesOf)
	wrote     atomic.Bool // a value
	out, errs *screen     // stdout and stderr, for what others wrote
}

// Printf writes to stdout what a terminal acts on in nothing, whoever wrote the
// arguments. Each of them stays on its line, but for a block.
func (p *printer) Printf(format string, args ...any) error {
	_, err := fmt.Fprintf(p.out, format, foreign(args)...)
	return err
}

// Eprintf is Printf to stderr.
func (p *printer) Eprintf(format string, args ...any) error {
	_, err := fmt.Fprintf(p.errs, format, foreign(args)...)
	return err
}

// PrintValue writes one value to stdout: on one line, as JSON, or as --output has it.
func (p *printer) PrintValue(value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("print JSON: %w", err)
	}
	switch p.format {
	case formatName:
		return p.printNames(text)
	case formatYAML:
		if text, err = toYAML(text); err != nil {
			return fmt.Errorf("print YAML: %w", err)
		}
		if p.wrote.Swap(true) {
			text = append([]byte("---\n"), text...)
		}
	default:
		text = append(text, '\n')
	}
	_, err = p.out.Write(text)
	return err
}

// note tells people something on stderr that is no part of the answer.
func (p *printer) note(format string, args ...any) {
	text := fmt.Sprintf(format, foreign(args)...)
	if !p.slash {
		text = p.name + ": " + text
	}
	fmt.Fprintln(p.errs, text)
}

// say is Printf for people: it is silent where values are wanted.
func (p *printer) say(format string, args ...any) error {
	if p.Structured() {
		return nil
	}
	return p.Printf(format, args...)
}

// done prints what a call came to: its result as a value, or a line for people.
func (p *printer) done(result any, err error, format string, args ...any) error {
	switch {
	case err != nil:
		return err
	case p.Structured():
		return p.PrintValue(result)
	}
	return p.Printf(format, args...)
}

// ended is done for a call that was to end something. Unless it was there, the error is
// missing, and comes after the result.
func (p *printer) ended(result any, was bool, missing error, format string, args ...any) error {
	if was {
		return p.done(result, nil, format, args...)
	}
	var err error
	if p.Structured() {
		err = p.PrintValue(result)
	}
	return errors.Join(err, missing)
}

// bar shows on stderr how far work has come of so many parts, which noun names. What is printed stands
// above it. The caller must call end.
func (a *App) bar(total int, noun string) (bar *progress.Bar, end func()) {
	bar = progress.Begin(a.Stderr, a.getenv("TERM"), total, noun)
	restoreOut, restoreErrs := a.out.through(bar.Beside), a.errs.through(bar.Beside)
	return bar, func() {
		bar.End()
		restoreOut()
		restoreErrs()
	}
}

// Counted is a number of things: "1 session", "2 sessions".
func Counted[N int | int64 | uint64](n N, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
}

// moment is a time as people of this machine read it: 2026-01-20 10:11:02 CET.
func moment(t time.Time) string { return t.Local().Format(time.DateTime + " MST") }

// momentOf is moment of an RFC 3339 text; any other text as it is.
func momentOf(text string) string {
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return text
	}
	return moment(t)
}
