package file

import (
	"context"
	"fmt"
	"io"
	"regexp"
	"regexp/syntax"
	"unicode/utf8"

	"nexus.internal/protocol/strict"
)

const (
	maxExpression = 1 << 10 // bytes of a pattern
	maxProgram    = 20_000  // instructions that it may compile to
	maxSteps      = 1 << 19 // instructions times bytes between two looks at the context: some 10 ms
)

// matcher is a regular expression that can be interrupted. Go's take a time
// that is at most the product of the text's length and the program's.
type matcher struct {
	expression *regexp.Regexp
	size       int // instructions
}

// newMatcher reads a pattern. In a multi-line one, ^ and $ stand for the ends of lines.
func newMatcher(pattern string, literal, ignoreCase, multiline bool) (*matcher, error) {
	switch {
	case pattern == "":
		return nil, &strict.Error{Path: "pattern", Problem: "is empty"}
	case len(pattern) > maxExpression:
		return nil, &strict.Error{Path: "pattern", Problem: fmt.Sprintf("has more than %d bytes", maxExpression)}
	}
	if literal {
		pattern = regexp.QuoteMeta(pattern)
	}
	if ignoreCase {
		pattern = "(?i)" + pattern
	}
	if multiline {
		pattern = "(?m)" + pattern
	}
	parsed, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return nil, &strict.Error{Path: "pattern", Problem: "is no regular expression of Go: " + err.Error()}
	}
	program, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		return nil, &strict.Error{Path: "pattern", Problem: "cannot be used: " + err.Error()}
	}
	if len(program.Inst) > maxProgram {
		return nil, &strict.Error{Path: "pattern", Problem: "is too large: it repeats too much"}
	}
	expression, err := regexp.Compile(pattern)
	if err != nil {
		return nil, &strict.Error{Path: "pattern", Problem: "cannot be used: " + err.Error()}
	}
	return &matcher{expression, len(program.Inst)}, nil
}

// find returns where the first match in a text begins and ends, or -1. It returns -1
// within some 10 ms of the end of ctx.
func (m *matcher) find(ctx context.Context, line []byte) (from, to int) {
	var at []int
	if len(line)*m.size <= maxSteps {
		at = m.expression.FindIndex(line)
	} else {
		at = m.expression.FindReaderIndex(&runes{ctx: ctx, text: line, every: maxSteps/m.size + 1})
	}
	if at == nil {
		return -1, -1
	}
	return at[0], at[1]
}

// runes is a text that ends when its context does.
type runes struct {
	ctx   context.Context
	text  []byte
	every int // runes between two looks at the context
	count int
}

func (r *runes) ReadRune() (rune, int, error) {
	if r.count++; r.count%r.every == 0 && r.ctx.Err() != nil {
		return 0, 0, io.EOF
	}
	if len(r.text) == 0 {
		return 0, 0, io.EOF
	}
	c, size := utf8.DecodeRune(r.text)
	r.text = r.text[size:]
	return c, size, nil
}
