package file

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

const (
	maxPlaces   = 1 << 16 // where the text of one hunk may stand
	maxMatching = 1 << 27 // lines that are compared for one file
	maxAnchors  = 16      // of one hunk
)

// patchedText is a text while hunks are applied to it.
type patchedText struct {
	body     string
	out      []byte // what is ready of the new text
	at       int    // in body; what is before it is in out
	line     int    // of at, from 1
	drift    int    // by how many lines the last hunk stood below where it said
	compared int    // lines, of maxMatching
	pause    int    // lines after which to look at the context
}

// applyHunks makes the changes to a text, in their order. Lines that stay keep what they have at their ends; those
// that come get the line end of their place. A byte order mark is no part of the text.
func applyHunks(ctx context.Context, content string, hunks []hunk) (string, error) {
	body, marked := strings.CutPrefix(content, byteMark)
	t := &patchedText{body: body, line: 1}
	for i, h := range hunks {
		if err := t.apply(ctx, h, i); err != nil {
			return "", fmt.Errorf("hunk %d (line %d of the patch): %w", i+1, h.line, err)
		}
	}
	if t.at == len(body) && len(hunks) > 0 {
		t.end(hunks[len(hunks)-1].ended)
	}
	t.out = append(t.out, body[t.at:]...)
	switch {
	case len(t.out) > maxEdit:
		return "", fmt.Errorf("it would have more than %d bytes", maxEdit)
	case string(t.out) == body && len(hunks) > 0:
		return "", errors.New("that changes nothing: line endings stay as they are")
	case marked:
		return byteMark + string(t.out), nil
	}
	return string(t.out), nil
}

// apply makes the change of one hunk, from its first changed line to its last: the next one may
// begin in the lines that stay after that.
func (t *patchedText) apply(ctx context.Context, h hunk, number int) error {
	at, err := t.find(ctx, h, number)
	if err != nil {
		return err
	}
	if h.stated > 0 {
		t.drift = t.line + strings.Count(t.body[t.at:at], "\n") - h.stated
	}
	first, last := slices.IndexFunc(h.lines, hunkLine.changes), len(h.lines)-1
	for range first {
		_, at = lineAt(t.body, at)
	}
	for !h.lines[last].changes() {
		last--
	}
	t.advance(at, true)
	near := at // the line whose end those that come get
	for _, l := range h.lines[first : last+1] {
		if l.op != '-' && len(t.out) > 0 && t.out[len(t.out)-1] != '\n' { // it was the last line
			t.out = append(t.out, t.lineEnd(near)...)
		}
		if l.op == '+' {
			t.out = append(append(t.out, l.text...), t.lineEnd(near)...)
			continue
		}
		near = t.at
		_, next := lineAt(t.body, t.at)
		t.advance(next, l.op == ' ')
	}
	return nil
}

// advance goes on to a place in the body. What is before it stays, or goes.
func (t *patchedText) advance(to int, stays bool) {
	if stays {
		t.out = append(t.out, t.body[t.at:to]...)
	}
	t.line += strings.Count(t.body[t.at:to], "\n")
	t.at = to
}

func (t *patchedText) lineEnd(near int) string { return cmp.Or(ending(t.body, near), "\n") }

// end gives the new text an end of its last line, or none: as the patch says, or else as it was.
func (t *patchedText) end(ended *bool) {
	wanted := t.body == "" || strings.HasSuffix(t.body, "\n")
	if ended != nil {
		wanted = *ended
	}
	switch end := t.lineEnd(len(t.body)); {
	case len(t.out) > 0 && wanted && t.out[len(t.out)-1] != '\n':
		t.out = append(t.out, end...)
	case !wanted:
		t.out = bytes.TrimSuffix(t.out, []byte("\n"))
		t.out = bytes.TrimSuffix(t.out, []byte(strings.TrimSuffix(end, "\n")))
	}
}

// find returns where in the body the lines of a hunk stand that are there already, or where its lines come.
func (t *patchedText) find(ctx context.Context, h hunk, number int) (int, error) {
	from, err := t.afterAnchors(ctx, h)
	if err != nil {
		return 0, err
	}
	if !slices.ContainsFunc(h.lines, hunkLine.isOld) {
		return t.insertion(h, from)
	}
	for _, loose := range []bool{false, true} {
		places, err := t.places(ctx, h, t.at, loose)
		if err != nil {
			return 0, err
		}
		if from != nil {
			places = firstAfter(from, places)
		}
		if h.stated > 0 && len(places) > 1 {
			places = t.stated(h.stated+t.drift, places)
		}
		switch {
		case len(places) == 1:
			return places[0], nil
		case len(places) > 1:
			return 0, fmt.Errorf("its text is there %d times, %s: put more of the lines around it into the hunk, or the line of its function after @@",
				len(places), inLines(t.body, places))
		}
	}
	return 0, t.missing(ctx, h, number)
}

// afterAnchors are the lines from which on the hunk is looked for, nil for any: each the last of its anchors. Of two
// anchors the second is the first of its kind after the other. A function that the hunk before was in may be named again.
func (t *patchedText) afterAnchors(ctx context.Context, h hunk) (from []int, err error) {
	if n := len(h.anchors); n > maxAnchors {
		return nil, fmt.Errorf("%d lines stand after @@ before it, at most %d are taken", n, maxAnchors)
	}
	for i, anchor := range h.anchors {
		lines, err := t.linesLike(ctx, anchor, true)
		if err == nil && len(lines) == 0 {
			lines, err = t.linesLike(ctx, anchor, false)
		}
		if err != nil {
			return nil, err
		}
		if i > 0 {
			for j, at := range from {
				_, from[j] = lineAt(t.body, at)
			}
			lines = firstAfter(from, lines)
		} else if below, _ := slices.BinarySearch(lines, t.at); len(lines) > 0 {
			lines = lines[min(below, len(lines)-1):]
		}
		if from = lines; len(from) == 0 {
			return nil, fmt.Errorf("no line is, or begins with, %s, which stands after @@", quoted(anchor))
		}
	}
	return from, nil
}

// linesLike are the lines that are the text, or begin with it, without space around them; not more than maxPlaces.
func (t *patchedText) linesLike(ctx context.Context, text string, whole bool) (lines []int, err error) {
	for at := 0; at < len(t.body) && len(lines) < maxPlaces; {
		if err := t.compare(ctx); err != nil {
			return nil, err
		}
		line, next := lineAt(t.body, at)
		if line = strings.TrimSpace(line); line == text || !whole && strings.HasPrefix(line, text) {
			lines = append(lines, at)
		}
		at = next
	}
	return lines, nil
}

// compare counts a line that is compared, and is the error of an end, or of too many.
func (t *patchedText) compare(ctx context.Context) error {
	if t.compared++; t.compared >= t.pause {
		if t.pause = t.compared + ctxEvery; ctx.Err() != nil {
			return ctx.Err()
		}
	}
	if t.compared > maxMatching {
		return errTooOften
	}
	return nil
}

var errTooOften = errors.New("the file repeats itself too often to find the place")

// insertion is the place of a hunk that has nothing but lines that come.
func (t *patchedText) insertion(h hunk, from []int) (int, error) {
	switch {
	case len(from) > 1:
		return 0, fmt.Errorf("the line after @@ is there %d times, %s: put lines around the new ones into the hunk", len(from), inLines(t.body, from))
	case len(from) == 1:
		if _, at := lineAt(t.body, from[0]); at >= t.at {
			return at, nil
		}
		return 0, fmt.Errorf("the line after @@ is %s, above the change of the hunk before: hunks come in the order of the file", inLines(t.body, from))
	case h.atEnd || t.body == "":
		return len(t.body), nil
	default:
		return 0, errors.New("it has only new lines: put some of the lines around them into it")
	}
}

// firstAfter is the first of the places at or after each of from. Both are in order.
func firstAfter(from, places []int) (first []int) {
	for _, at := range from {
		i, _ := slices.BinarySearch(places, at)
		if i < len(places) && (len(first) == 0 || first[len(first)-1] != places[i]) {
			first = append(first, places[i])
		}
	}
	return first
}

// stated is the place in that line, or all of them.
func (t *patchedText) stated(line int, places []int) []int {
	now, at := t.line, t.at
	for i, place := range places {
		now, at = now+strings.Count(t.body[at:place], "\n"), place
		if now == line {
			return places[i : i+1]
		}
	}
	return places
}

// places are where the lines of a hunk stand, from there on; loose is without regard to space at their ends.
func (t *patchedText) places(ctx context.Context, h hunk, from int, loose bool) (places []int, err error) {
	for at := from; at < len(t.body); {
		if t.stands(h, at, loose) {
			places = append(places, at)
		}
		if err := t.compare(ctx); err != nil {
			return nil, err
		}
		if len(places) > maxPlaces {
			return nil, errTooOften
		}
		_, at = lineAt(t.body, at)
	}
	return places, nil
}

// stands reports whether the lines of a hunk stand there.
func (t *patchedText) stands(h hunk, at int, loose bool) bool {
	const space = " \t"
	for _, l := range h.lines {
		if !l.isOld() {
			continue
		}
		if at == len(t.body) {
			return false
		}
		var line string
		line, at = lineAt(t.body, at)
		t.compared++
		if line != l.text && (!loose || strings.TrimRight(line, space) != strings.TrimRight(l.text, space)) {
			return false
		}
	}
	return !h.atEnd || at == len(t.body)
}

// lineAt is the line that begins there, without its end, and where the next one begins.
func lineAt(body string, at int) (line string, next int) {
	line, _, found := strings.Cut(body[at:], "\n")
	next = at + len(line)
	if found {
		next++
	}
	return strings.TrimSuffix(line, "\r"), next
}

// missing is the error for a hunk whose lines stand nowhere that they could.
func (t *patchedText) missing(ctx context.Context, h hunk, number int) error {
	anywhere := h
	anywhere.atEnd = false
	for _, loose := range []bool{false, true} {
		places, err := t.places(ctx, anywhere, 0, loose)
		if err != nil {
			return err
		}
		if len(places) == 0 {
			continue
		}
		where := inLines(t.body, places)
		switch {
		case places[len(places)-1] < t.at:
			return fmt.Errorf("its text is %s, above the change of hunk %d: hunks come in the order of the file", where, number)
		case h.atEnd:
			return fmt.Errorf("its text is %s, but the file does not end there", where)
		case len(h.anchors) > 0:
			return fmt.Errorf("its text is %s, but not after the line %s", where, quoted(h.anchors[len(h.anchors)-1]))
		}
	}
	var old []string
	for _, l := range h.lines {
		if l.isOld() {
			old = append(old, l.text)
		}
	}
	return missing(ctx, t.body, "its text", strings.Join(old, "\n"))
}
