package file

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"nexus.internal/protocol/textcut"
)

// encoding is how a text is stored. Tools work on UTF-8 and put back what they
// found.
type encoding int

const (
	notText encoding = iota
	inUTF8
	inUTF16LE
	inUTF16BE
	inWindows1252 // which holds Latin-1
)

func (e encoding) String() string {
	switch e {
	case inUTF8:
		return "UTF-8"
	case inUTF16LE, inUTF16BE:
		return "UTF-16"
	case inWindows1252:
		return "Windows-1252"
	case notText:
		return "no text"
	default:
		return fmt.Sprintf("encoding %d", int(e))
	}
}

// sniff tells the encoding by the beginning of a file, which may end in the
// middle of a character.
func sniff(head []byte) encoding {
	switch {
	case bytes.HasPrefix(head, []byte("\xff\xfe\x00\x00")): // UTF-32
		return notText
	case bytes.HasPrefix(head, []byte("\xff\xfe")):
		return inUTF16LE
	case bytes.HasPrefix(head, []byte("\xfe\xff")):
		return inUTF16BE
	case isText(head):
		return inUTF8
	}
	high := 0
	for _, c := range head {
		switch {
		case c >= 0x80:
			high++
		case c < ' ' && !strings.ContainsRune("\t\n\r\f\b\x1b", rune(c)), c == 0x7f:
			return notText
		}
	}
	if high*2 > len(head) { // letters of other scripts, or no text at all
		return notText
	}
	return inWindows1252
}

// Text is data as UTF-8, whichever of the known encodings it is in, without a byte order mark;
// false if it is no text. It may end in the middle of a character.
func Text(data []byte) (string, bool) {
	e := sniff(data[:min(len(data), sniffed)])
	if e == notText {
		return "", false
	}
	text, err := io.ReadAll(e.reader(bytes.NewReader(data)))
	return strings.ToValidUTF8(strings.TrimPrefix(string(text), byteMark), "\uFFFD"), err == nil
}

// isText reports whether head looks like the beginning of a text in UTF-8. Its
// end may be in the middle of a character.
func isText(head []byte) bool {
	return bytes.IndexByte(head, 0) < 0 && utf8.Valid(head[:len(head)-textcut.Partial(head)])
}

// windows1252 are the characters of the bytes 0x80 to 0x9f (WHATWG Encoding
// Standard); all others stand for themselves.
var windows1252 = [32]rune{
	'€', 0x81, '‚', 'ƒ', '„', '…', '†', '‡', 'ˆ', '‰', 'Š', '‹', 'Œ', 0x8d, 'Ž', 0x8f,
	0x90, '‘', '’', '“', '”', '•', '–', '—', '˜', '™', 'š', '›', 'œ', 0x9d, 'ž', 'Ÿ',
}

// reader gives the text in UTF-8. A byte order mark stays where it is.
func (e encoding) reader(r io.Reader) io.Reader {
	if e == inUTF8 || e == notText {
		return r
	}
	return &decoder{e: e, in: bufio.NewReaderSize(r, sniffed)}
}

// decoder turns a text into UTF-8 as it is read.
type decoder struct {
	e   encoding
	in  *bufio.Reader
	out []byte // not given out yet
	err error  // comes after out
}

func (d *decoder) Read(p []byte) (int, error) {
	for len(d.out) == 0 {
		if d.err != nil {
			return 0, d.err
		}
		d.out = d.out[:0]
		for len(d.out) < sniffed && d.err == nil {
			d.next()
		}
	}
	n := copy(p, d.out)
	d.out = d.out[n:]
	return n, nil
}

// next decodes one character.
func (d *decoder) next() {
	if d.e == inWindows1252 {
		c, err := d.in.ReadByte()
		switch {
		case err != nil:
			d.err = err
		case c >= 0x80 && c < 0xa0:
			d.out = utf8.AppendRune(d.out, windows1252[c-0x80])
		default:
			d.out = utf8.AppendRune(d.out, rune(c))
		}
		return
	}
	first, err := d.unit()
	if err != nil {
		d.err = err
		return
	}
	if utf16.IsSurrogate(rune(first)) {
		if pair, err := d.in.Peek(2); err == nil {
			if both := utf16.DecodeRune(rune(first), rune(d.of(pair))); both != utf8.RuneError {
				_, _ = d.in.Discard(2) // they were peeked at
				d.out = utf8.AppendRune(d.out, both)
				return
			}
		}
	}
	d.out = utf8.AppendRune(d.out, rune(first))
}

// unit reads one code unit; half of one at the end becomes U+FFFD.
func (d *decoder) unit() (uint16, error) {
	var pair [2]byte
	_, err := io.ReadFull(d.in, pair[:])
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return utf8.RuneError, nil
	}
	return d.of(pair[:]), err
}

func (d *decoder) of(pair []byte) uint16 {
	if d.e == inUTF16BE {
		return uint16(pair[0])<<8 | uint16(pair[1])
	}
	return uint16(pair[1])<<8 | uint16(pair[0])
}

// encode is the text as it is stored. The error names the first character that
// cannot be.
func (e encoding) encode(text string) (string, error) {
	if e != inUTF16LE && e != inUTF16BE && e != inWindows1252 {
		return text, nil
	}
	out := make([]byte, 0, len(text))
	for _, r := range text {
		if e == inWindows1252 {
			c, ok := toWindows1252(r)
			if !ok {
				return "", fmt.Errorf("the file is in %v, which has no %q", e, r)
			}
			out = append(out, c)
			continue
		}
		for _, unit := range utf16.AppendRune(nil, r) {
			if e == inUTF16BE {
				out = append(out, byte(unit>>8), byte(unit))
			} else {
				out = append(out, byte(unit), byte(unit>>8))
			}
		}
	}
	return string(out), nil
}

func toWindows1252(r rune) (byte, bool) {
	if r < 0x80 || r >= 0xa0 && r <= 0xff {
		return byte(r), true
	}
	for i, c := range windows1252 {
		if c == r {
			return byte(0x80 + i), true
		}
	}
	return 0, false
}
