package file

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"nexus.internal/protocol/textcut"
)

const (
	maxQuoted   = 200     // bytes of a line that an error quotes
	maxCompared = 1 << 20 // lines that are compared for one error
	maxLikened  = 1 << 10 // bytes of a line that are looked at to see how alike two are
)

// missing is the error for a text, called what, that is not there. It tells of the line that
// comes nearest: a model can mend its call from that without reading again.
func missing(ctx context.Context, body, what, old string) error {
	wanted := strings.Split(strings.Trim(strings.ReplaceAll(old, "\r\n", "\n"), "\n"), "\n")
	lines := strings.Split(strings.ReplaceAll(body, "\r\n", "\n"), "\n")
	at, same, err := nearest(ctx, lines, wanted)
	switch {
	case err != nil:
		return err
	case at < 0:
		return fmt.Errorf("%s is not there, nor any line like its first, %s", what, quoted(wanted[0]))
	case same == len(wanted):
		return fmt.Errorf("%s is not there; its lines are, from line %d on, but not the empty lines or line ends around them", what, at+1)
	case same > 0 && at+same == len(lines):
		return fmt.Errorf("%s is not there; its first %d %s from line %d on, but there the file ends",
			what, same, plural(same, "line")+are(same), at+1)
	case same > 0:
		return fmt.Errorf("%s is not there; its first %d %s from line %d on, but then comes %s, not %s",
			what, same, plural(same, "line")+are(same), at+1, quoted(lines[at+same]), quoted(wanted[same]))
	case strings.TrimSpace(lines[at]) == strings.TrimSpace(wanted[0]):
		return fmt.Errorf("%s is not there; line %d has other white space: it is %s, not %s",
			what, at+1, quoted(lines[at]), quoted(wanted[0]))
	default:
		return fmt.Errorf("%s is not there; the nearest to its first line is line %d: %s", what, at+1, quoted(lines[at]))
	}
}

func are(n int) string {
	if n == 1 {
		return " is"
	}
	return " are"
}

// nearest finds the line, from 0, where most of the wanted lines begin to
// stand, and how many. If none does, same is 0 and at the line most like the
// first of them, or -1.
func nearest(ctx context.Context, lines, wanted []string) (at, same int, err error) {
	at = -1
	first := pairsOf(wanted[0])
	best := 0.5 // less than half of its pairs of bytes in common is not alike
	compared := 0
	for i, line := range lines {
		if i%ctxEvery == 0 && ctx.Err() != nil {
			return 0, 0, ctx.Err()
		}
		run := 0
		for run < len(wanted) && i+run < len(lines) && lines[i+run] == wanted[run] && compared < maxCompared {
			run++
			compared++
		}
		switch {
		case run > same:
			at, same = i, run
		case same == 0:
			if likeness := first.likeness(line); likeness > best {
				at, best = i, likeness
			}
		}
	}
	return at, same, nil
}

// core is the beginning of a line, without the space around it.
func core(line string) string {
	line = strings.TrimSpace(line)
	return line[:min(len(line), maxLikened)]
}

// pairs are the pairs of neighbouring bytes in the core of a line.
type pairs struct {
	of    string
	count map[[2]byte]int
}

func pairsOf(line string) pairs {
	p := pairs{of: core(line), count: map[[2]byte]int{}}
	for i := range len(p.of) - 1 {
		p.count[[2]byte{p.of[i], p.of[i+1]}]++
	}
	return p
}

// likeness is from 0 to 1: the share of pairs that both lines have (Dice). A
// line more than three times as long as the other is not alike.
func (p pairs) likeness(line string) float64 {
	line = core(line)
	if line == p.of && line != "" {
		return 1
	}
	total := len(line) + len(p.of) - 2
	if len(line) < 2 || len(p.of) < 2 || len(line) > 3*len(p.of) || len(p.of) > 3*len(line) {
		return 0
	}
	common, seen := 0, map[[2]byte]int{}
	for i := range len(line) - 1 {
		pair := [2]byte{line[i], line[i+1]}
		if have := p.count[pair]; have > 0 && seen[pair] < have {
			seen[pair]++
			common++
		}
	}
	return 2 * float64(common) / float64(total)
}

func quoted(line string) string {
	head := textcut.Head(line, maxQuoted)
	if len(head) == len(line) {
		return strconv.Quote(line)
	}
	return strconv.Quote(head) + "…"
}
