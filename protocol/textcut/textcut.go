package textcut

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// mark stands for what Clip and Line leave out.
const mark = "…"

// Head returns the longest beginning of text that has at most limit bytes and
// does not end within a character.
func Head[T ~string | ~[]byte](text T, limit int) T {
	cut := max(limit, 0)
	if len(text) <= cut {
		return text
	}
	for end := cut; end >= 0 && end > cut-utf8.UTFMax; end-- {
		if utf8.RuneStart(text[end]) {
			return text[:end]
		}
	}
	return text[:cut] // not UTF-8
}

// Tail returns the longest end of text that has at most limit bytes and does not
// begin within a character.
func Tail[T ~string | ~[]byte](text T, limit int) T {
	cut := len(text) - max(limit, 0)
	if cut <= 0 {
		return text
	}
	for begin := cut; begin < cut+utf8.UTFMax; begin++ {
		if begin == len(text) || utf8.RuneStart(text[begin]) {
			return text[begin:]
		}
	}
	return text[cut:] // not UTF-8
}

// Partial returns how many bytes at the end of text are the beginning of a
// character that is not complete, 0 to 3: what a reader of a stream keeps until
// the next bytes come.
func Partial[T ~string | ~[]byte](text T) int {
	for n := 1; n < utf8.UTFMax && n <= len(text); n++ {
		if last := text[len(text)-n:]; utf8.RuneStart(last[0]) {
			if utf8.FullRuneInString(string(last)) {
				return 0
			}
			return n
		}
	}
	return 0
}

// Whole returns text without the parts of characters that it begins and ends
// with, as a piece has them that was taken out of a text at any byte.
func Whole[T ~string | ~[]byte](text T) T {
	begin := 0
	for begin < min(len(text), utf8.UTFMax-1) && !utf8.RuneStart(text[begin]) {
		begin++
	}
	return text[begin : len(text)-min(Partial(text), len(text)-begin)]
}

// Clip returns text as UTF-8 in at most limit bytes; "…", which counts, ends a
// text that is cut. Bytes that are not UTF-8 become U+FFFD.
func Clip(text string, limit int) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if len(text) <= limit {
		return text
	}
	return Head(text, limit-len(mark)) + Head(mark, limit)
}

// Line is Clip of text on one line: each run of white space in it becomes one
// space, and none is left at its ends.
func Line(text string, limit int) string {
	var line strings.Builder
	for field := range strings.FieldsSeq(text) {
		if line.Len() > limit {
			break
		}
		if line.Len() > 0 {
			line.WriteByte(' ')
		}
		line.WriteString(field)
	}
	return Clip(line.String(), limit)
}

// Name returns what somebody else called a thing, for one line: as it stands if it is UTF-8 without
// control characters, and quoted as Go does it if not. It cuts nothing.
func Name(name string) string {
	if utf8.ValidString(name) && !strings.ContainsFunc(name, unicode.IsControl) {
		return name
	}
	return strconv.Quote(name)
}
