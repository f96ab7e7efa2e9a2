package cli

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/go-json-experiment/json/jsontext"
)

// toYAML is a value, given as JSON, in lines of YAML. Members keep their order. A text of several
// lines is a block; another one stands in quotes, unless every reader takes it for a text without.
func toYAML(value []byte) ([]byte, error) {
	y := yamlWriter{in: jsontext.NewDecoder(bytes.NewReader(value))}
	err := y.value(0, "")
	return y.out, err
}

// yamlWriter writes YAML of the JSON that it reads.
type yamlWriter struct {
	in  *jsontext.Decoder
	out []byte
}

// value writes the next value, whose lines begin at a column. What stands before it in the line is
// "" at the begin, else "-" or, behind the name of a member, ":".
func (y *yamlWriter) value(column int, before string) error {
	token, err := y.in.ReadToken()
	if err != nil {
		return err
	}
	space := " "
	if before == "" {
		space = ""
	}
	kind, end := token.Kind(), jsontext.Kind('}')
	switch kind {
	case '"':
		y.out = append(y.out, space+yamlText(token.String(), column)+"\n"...)
		return nil
	case '[':
		end = ']'
	case '{':
	default:
		y.out = append(y.out, space+token.String()+"\n"...)
		return nil
	}
	if y.in.PeekKind() == end {
		y.out = append(y.out, space+string(rune(kind))+string(rune(end))+"\n"...)
	} else if before == ":" {
		y.out = append(y.out, '\n')
	}
	for first := true; y.in.PeekKind() != end; first = false {
		switch {
		case !first || before == ":":
			y.out = fmt.Appendf(y.out, "%*s", column, "")
		default:
			y.out = append(y.out, space...)
		}
		if err := y.element(kind, column); err != nil {
			return err
		}
	}
	_, err = y.in.ReadToken()
	return err
}

// element writes the next member of an object, or element of an array.
func (y *yamlWriter) element(of jsontext.Kind, column int) error {
	if of == '[' {
		y.out = append(y.out, '-')
		return y.value(column+2, "-")
	}
	name, err := y.in.ReadToken()
	if err != nil {
		return err
	}
	y.out = append(y.out, yamlText(name.String(), 0)+":"...)
	return y.value(column+2, ":")
}

// plainYAML matches texts that are such for each reader of YAML, but for yamlWords.
var plainYAML = regexp.MustCompile(`^[A-Za-z/][A-Za-z0-9_/]*([ .@+-]?[A-Za-z0-9_/]+)*$`)

// yamlWords are texts that are something else for some reader.
var yamlWords = []string{"true", "false", "yes", "no", "on", "off", "y", "n", "null"}

// yamlText is a text in YAML; a block of it begins at a column, which is 0 where there may be none.
func yamlText(text string, column int) string {
	if plainYAML.MatchString(text) && !slices.Contains(yamlWords, strings.ToLower(text)) {
		return text
	}
	if body := strings.TrimSuffix(text, "\n"); column > 0 && blockYAML(body) {
		header := "|-\n"
		if body != text {
			header = "|\n"
		}
		indent := strings.Repeat(" ", column)
		return header + indent + strings.ReplaceAll(body, "\n", "\n"+indent)
	}
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range text {
		switch {
		case r == '"' || r == '\\':
			b.WriteString(`\` + string(r))
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case unicode.IsPrint(r):
			b.WriteRune(r)
		case r > 0xffff:
			fmt.Fprintf(&b, `\U%08x`, r)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// blockYAML reports whether a text is the same in a block: its first and its last line are not blank,
// the first is not indented, and nothing in it would have to be escaped.
func blockYAML(text string) bool {
	first, rest, several := strings.Cut(text, "\n")
	last := rest[strings.LastIndexByte(rest, '\n')+1:]
	return several && strings.TrimSpace(first) != "" && strings.TrimLeft(first, " \t") == first && strings.TrimSpace(last) != "" &&
		!strings.ContainsFunc(text, func(r rune) bool { return r != '\n' && r != '\t' && !unicode.IsPrint(r) })
}
