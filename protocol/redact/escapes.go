package redact

import (
	"bytes"
	"unicode/utf16"
	"unicode/utf8"
)

// maxNested is how often a text is read as the content of a JSON string: an error may
// quote an answer that quotes another one. maxPercent is the same for what URLs escape, of each
// of these readings: a query that is a part of another one.
const (
	maxNested  = 3
	maxPercent = 2
)

// decoded is a text as a reader of JSON, or of an event stream, has it, with where each
// byte of it stands in the text as it was written.
type decoded struct {
	text []byte
	at   []int // one more than bytes: the last is where what is decoded ends; nil for the text as it was written
	// cut says that the text ends in the middle of an escape, which begins at the last
	// of at; broken that it ends with a line break after which the value may go on.
	cut, broken bool
}

// place is where a byte stands in the text as it was written.
func (d decoded) place(i int) int {
	if d.at == nil {
		return i
	}
	return d.at[i]
}

// escaped reports whether a text may say something else once it is decoded. Simple
// escapes (\n, \") are not among what it looks for: what they stand for is in no secret,
// or Secrets has it.
func escaped(p []byte) bool {
	for rest := p; ; {
		i := bytes.IndexByte(rest, '\\')
		if i < 0 {
			break
		}
		if i+1 == len(rest) {
			return true
		}
		switch rest[i+1] {
		case 'u', '/', '\\', '\r', '\n':
			return true
		}
		rest = rest[i+2:]
	}
	return percent(p) || continued(p)
}

// percent reports whether URLs may escape something in p, or what follows it.
func percent(p []byte) bool {
	for {
		i := bytes.IndexByte(p, '%')
		if i < 0 {
			return false
		}
		if _, n := octet(p[i:]); n != 1 {
			return true
		}
		p = p[i+1:]
	}
}

// field begins each line of the value of an event.
var field = []byte("data:")

// continued reports whether the value of an event goes on in another line. Lines end with
// LF, CR or CRLF; the first of an event comes after an empty one.
func continued(p []byte) bool {
	for end := 0; ; end += len(field) {
		i := bytes.Index(p[end:], field)
		if i < 0 {
			return false
		}
		end += i
		line := p[:end]
		if !endsLine(line) {
			continue
		}
		if line = line[:len(line)-1]; len(line) > 0 && p[end-1] == '\n' && line[len(line)-1] == '\r' {
			line = line[:len(line)-1]
		}
		if len(line) > 0 && !endsLine(line) {
			return true
		}
	}
}

func endsLine(p []byte) bool {
	return len(p) > 0 && (p[len(p)-1] == '\n' || p[len(p)-1] == '\r')
}

// read makes another reading of d: next tells what the text goes on with, what it
// stands for (nothing for a line break within a value), and how many bytes it has, 0
// where the text ends before that is known.
func (d decoded) read(next func(p []byte) (r []byte, n int)) (out decoded, whole bool) {
	out = decoded{text: make([]byte, 0, len(d.text)), at: make([]int, 0, len(d.text)+1), cut: d.cut, broken: d.broken}
	i := 0
	for i < len(d.text) {
		r, n := next(d.text[i:])
		if n == 0 {
			break
		}
		for _, c := range r {
			out.text, out.at = append(out.text, c), append(out.at, d.place(i))
		}
		i += n
	}
	out.at = append(out.at, d.place(i))
	return out, i == len(d.text)
}

// joined is d with the lines of each value joined.
func (d decoded) joined() decoded {
	out, whole := d.read(func(p []byte) ([]byte, int) {
		if p[0] != '\n' && p[0] != '\r' {
			return p[:1], 1
		}
		switch n, broken := lineBreak(p); {
		case broken:
			return nil, 0
		case n > 0:
			return nil, n
		}
		return p[:1], 1
	})
	out.broken = out.broken || !whole
	return out
}

// unquoted is d read as the content of a JSON string.
func (d decoded) unquoted() decoded {
	out, whole := d.read(func(p []byte) ([]byte, int) {
		if p[0] != '\\' {
			return p[:1], 1
		}
		r, n := escape(p)
		return utf8.AppendRune(nil, r), n
	})
	out.cut = out.cut || !whole
	return out
}

// unescaped is d read as a part of a URL.
func (d decoded) unescaped() decoded {
	out, whole := d.read(func(p []byte) ([]byte, int) {
		c, n := octet(p)
		if n == 1 {
			return p[:1], 1
		}
		return []byte{c}, n
	})
	out.cut = out.cut || !whole
	return out
}

// octet reads the first byte of a part of a URL: what it stands for and how many bytes that
// has, 0 if p ends in it.
func octet(p []byte) (c byte, n int) {
	if p[0] != '%' {
		return p[0], 1
	}
	for _, digit := range p[1:min(len(p), 3)] {
		value, ok := hexDigit(digit)
		if !ok {
			return '%', 1
		}
		c = c<<4 | value
	}
	if len(p) < 3 {
		return 0, 0
	}
	return c, 3
}

// hexDigit is the value of a hexadecimal digit.
func hexDigit(c byte) (value byte, ok bool) {
	switch {
	case c >= '0' && c <= '9':
		return c - '0', true
	case c >= 'a' && c <= 'f':
		return c - 'a' + 10, true
	case c >= 'A' && c <= 'F':
		return c - 'A' + 10, true
	}
	return 0, false
}

// lineBreak is how many bytes a line break has with the name of the field that begins
// the next line of a value; 0 if the value does not go on. broken says that the text ends
// before that is known.
func lineBreak(p []byte) (n int, broken bool) {
	n = 1
	if len(p) > 1 && p[0] == '\r' && p[1] == '\n' {
		n = 2
	}
	rest := p[n:]
	if len(rest) < len(field) {
		return 0, bytes.HasPrefix(field, rest)
	}
	if !bytes.HasPrefix(rest, field) {
		return 0, false
	}
	if n += len(field); n < len(p) && p[n] == ' ' {
		n++
	}
	return n, false
}

// escape reads what begins with a backslash: what it stands for and how many bytes it
// has, 0 if p ends in it. A backslash that escapes nothing stands for itself.
func escape(p []byte) (r rune, n int) {
	if len(p) < 2 {
		return 0, 0
	}
	switch p[1] {
	case 'n':
		return '\n', 2
	case 'r':
		return '\r', 2
	case 't':
		return '\t', 2
	case 'b':
		return '\b', 2
	case 'f':
		return '\f', 2
	case '"', '\\', '/':
		return rune(p[1]), 2
	case 'u':
		r, n = unit(p)
		if n != 6 || !utf16.IsSurrogate(r) {
			return r, n
		}
		low, m := unit(p[6:])
		switch pair := utf16.DecodeRune(r, low); {
		case m == 6 && pair != utf8.RuneError:
			return pair, 12
		case m == 0 && len(p) < 12:
			return 0, 0
		}
		return utf8.RuneError, 6
	}
	return '\\', 1
}

// unit reads \uXXXX; n is 0 if p ends in it, and 1 if it is none.
func unit(p []byte) (r rune, n int) {
	for i, c := range p[:min(len(p), 6)] {
		if i == 0 && c == '\\' || i == 1 && c == 'u' {
			continue
		}
		value, ok := hexDigit(c)
		if i < 2 || !ok {
			return '\\', 1
		}
		r = r<<4 | rune(value)
	}
	if len(p) < 6 {
		return 0, 0
	}
	return r, 6
}

// layers are a text in all readings that differ from it.
func layers(text []byte) []decoded {
	d := decoded{text: text}.joined()
	all := append([]decoded{d}, d.ofURL()...)
	for range maxNested {
		if !bytes.Contains(d.text, []byte(`\`)) {
			break
		}
		d = d.unquoted()
		all = append(append(all, d), d.ofURL()...)
	}
	return all
}

// ofURL is d read as a part of a URL, and what that is read as one, where they differ from d.
func (d decoded) ofURL() (all []decoded) {
	for range maxPercent {
		if !percent(d.text) {
			break
		}
		d = d.unescaped()
		all = append(all, d)
	}
	return all
}

// UnescapeLetters is JSON in which escapes that stand for letters are the letters: names of
// members can be looked for in it, and quotes stay escaped.
func UnescapeLetters(p []byte) []byte {
	if !bytes.Contains(p, []byte(`\u00`)) {
		return p
	}
	out := make([]byte, 0, len(p))
	for len(p) > 0 {
		if p[0] != '\\' {
			out, p = append(out, p[0]), p[1:]
			continue
		}
		r, n := escape(p)
		if n == 6 && (r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r == '_') {
			out, p = append(out, byte(r)), p[n:]
			continue
		}
		n = max(1, min(n, len(p)))
		out, p = append(out, p[:n]...), p[n:]
	}
	return out
}
