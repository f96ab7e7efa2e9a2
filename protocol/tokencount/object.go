package tokencount

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/tidwall/gjson"
)

const (
	// maxModel bounds the name of a model as it is written, in bytes.
	maxModel = 2 << 10
	// maxDepth bounds how deep objects and arrays of a request are nested.
	maxDepth = 1000
	// maxWord bounds a number, in bytes.
	maxWord = 512
)

var (
	errModels  = errors.New(`the request must name its model once, as "model"`)
	errEscaped = errors.New("a name of a member at the top of the request has a backslash: write it without escapes")
	errDeep    = fmt.Errorf("objects and arrays of the request are nested more than %d deep", maxDepth)
)

// expected is what may come next in JSON, outside of strings and words.
type expected int

const (
	wantBegin expected = iota
	wantNameOrEnd
	wantName
	wantColon
	wantValue
	wantValueOrEnd
	wantCommaOrEnd
	wantNothing
)

// object walks a JSON object (RFC 8259) as it comes, in any pieces, and keeps nothing of it but the member "model"
// at its top. It is strict, so that no service reads another model: not the last of several, nor one whose
// name is escaped or in capitals, as some services ignore the case of names.
type object struct {
	err error // what is wrong; nothing is read after it

	next   expected
	nested []byte // the brackets that are open
	read   int    // bytes

	inString bool
	escape   int    // 1 after a backslash, 2 to 5 before as many hexadecimal digits but one
	inWord   bool   // a number, true, false or null
	word     int    // where it began
	text     []byte // the inside of a string that is kept, at most maxModel+1, or of a word

	isName  bool // the string is the name of a member
	isModel bool // the member at the top that is being read is "model"
	named   bool // there was one
	several bool // there was "models"
	model   []byte
}

func (o *object) write(p []byte) {
	for len(p) > 0 && o.err == nil {
		n := 1
		switch {
		case o.inString:
			n = o.readString(p)
		case o.inWord:
			n = o.readWord(p)
		default:
			o.readMark(p[0])
		}
		p = p[n:]
		o.read += n
	}
}

// whole reports whether the object has ended.
func (o *object) whole() bool { return o.err == nil && o.next == wantNothing }

func (o *object) fail(what string, at int) {
	o.err = fmt.Errorf("the request is no JSON object: %s at byte %d", what, at)
}

// ends are the bytes that a string does not pass over.
var ends = func() (t [256]bool) {
	for c := range ' ' {
		t[c] = true
	}
	t['"'], t['\\'] = true, true
	return t
}()

// readString takes the bytes of a string up to one that says something, that included.
func (o *object) readString(p []byte) (n int) {
	if o.escape > 0 {
		o.readEscape(p[0])
		return 1
	}
	for n < len(p) && !ends[p[n]] {
		n++
	}
	o.keep(p[:n])
	if n == len(p) {
		return n
	}
	switch p[n] {
	case '"':
		o.endString()
	case '\\':
		o.escape = 1
		o.keep(p[n : n+1])
		if o.isName && len(o.nested) == 1 {
			o.err = errEscaped
		}
	default:
		o.fail("a control character in a string", o.read+n)
	}
	return n + 1
}

func (o *object) readEscape(c byte) {
	o.keep([]byte{c})
	switch {
	case o.escape == 1 && c == 'u':
		o.escape = 5
	case o.escape == 1 && bytes.IndexByte([]byte(`"\/bfnrt`), c) >= 0:
		o.escape = 0
	case o.escape > 1 && bytes.IndexByte([]byte("0123456789abcdefABCDEF"), c) >= 0:
		if o.escape--; o.escape == 1 {
			o.escape = 0
		}
	default:
		o.fail("an escape that there is not", o.read)
	}
}

// keep keeps a piece of a string: of the names and the model at the top.
func (o *object) keep(p []byte) {
	if len(o.nested) == 1 && (o.isName || o.isModel) {
		o.text = append(o.text, p[:min(len(p), maxModel+1-len(o.text))]...)
	}
}

func (o *object) endString() {
	o.inString = false
	top := len(o.nested) == 1
	switch {
	case !o.isName:
		o.next = wantCommaOrEnd
		if top && o.isModel {
			o.model = bytes.Clone(o.text)
		}
	case top:
		o.next = wantColon
		o.isModel = bytes.EqualFold(o.text, []byte("model"))
		o.several = o.several || bytes.EqualFold(o.text, []byte("models"))
		if o.isModel && (o.named || string(o.text) != "model") {
			o.err = errModels
		}
		o.named = o.named || o.isModel
	default:
		o.next = wantColon
	}
}

// readWord takes the bytes of a word up to its end, that not included.
func (o *object) readWord(p []byte) (n int) {
	n = bytes.IndexAny(p, ",]} \t\r\n")
	ended := n >= 0
	if !ended {
		n = len(p)
	}
	o.text = append(o.text, p[:min(n, maxWord+1-len(o.text))]...)
	switch {
	case len(o.text) > maxWord || ended && !jsontext.Value(o.text).IsValid():
		o.fail("a value that there is not", o.word)
	case ended:
		o.inWord, o.next = false, wantCommaOrEnd
	}
	return n
}

// readMark takes a byte outside of strings and words.
func (o *object) readMark(c byte) {
	var in byte
	if len(o.nested) > 0 {
		in = o.nested[len(o.nested)-1]
	}
	isValue := o.next == wantValue || o.next == wantValueOrEnd
	switch {
	case c == ' ' || c == '\t' || c == '\r' || c == '\n':
	case c == '{' && (isValue || o.next == wantBegin):
		o.open(c, wantNameOrEnd)
	case c == '[' && isValue:
		o.open(c, wantValueOrEnd)
	case c == '"' && (isValue || o.next == wantName || o.next == wantNameOrEnd):
		o.inString, o.isName, o.text = true, !isValue, o.text[:0]
	case isValue && bytes.IndexByte([]byte("-0123456789tfn"), c) >= 0:
		o.inWord, o.word, o.text = true, o.read, append(o.text[:0], c)
	case c == ':' && o.next == wantColon:
		o.next = wantValue
	case c == ',' && o.next == wantCommaOrEnd && in == '{':
		o.next = wantName
	case c == ',' && o.next == wantCommaOrEnd:
		o.next = wantValue
	case c == '}' && in == '{' && (o.next == wantNameOrEnd || o.next == wantCommaOrEnd),
		c == ']' && in == '[' && (o.next == wantValueOrEnd || o.next == wantCommaOrEnd):
		o.close()
	default:
		o.fail(fmt.Sprintf("unexpected %q", string([]byte{c})), o.read)
	}
}

func (o *object) open(c byte, next expected) {
	if len(o.nested) == maxDepth {
		o.err = errDeep
		return
	}
	o.nested, o.next = append(o.nested, c), next
}

func (o *object) close() {
	o.nested, o.next = o.nested[:len(o.nested)-1], wantCommaOrEnd
	if len(o.nested) == 0 {
		o.next = wantNothing
	}
}

// modelName is the model; "" if there is none yet, or its name is too long.
func (o *object) modelName() string {
	if len(o.model) > maxModel {
		return ""
	}
	return gjson.Parse(`"` + string(o.model) + `"`).String()
}
