package foreign

import (
	"regexp"
	"strings"
	"sync"
)

// patch takes the files out of a text that is a patch, or holds one: `*** Add File: x`, or `--- a/x` and `+++ b/x`, with what git and others write beside them. It reports
// whether the text begins as one.
func (s *search) patch(text string) bool {
	p := patch{search: s}
	for line := range strings.Lines(text) {
		line = strings.TrimFunc(line, unseen)
		p.line(line)
		if strings.ContainsFunc(line, breaksLine) {
			for part := range strings.FieldsFuncSeq(line, breaksLine) {
				p.line(strings.TrimFunc(part, unseen))
			}
		}
	}
	for _, file := range p.olds {
		if p.holds || wholePath(file) != "" {
			s.prefixed(file)
		}
	}
	return p.begins
}

// patch is a text as it is looked through.
type patch struct {
	*search
	olds   []string // behind "--- ", which also stands before other things than files
	holds  bool     // some line is surely one of a patch
	read   bool     // a line that is not empty
	begins bool     // the first of these is one of a patch
}

// line takes a line, or what others take for one.
func (p *patch) line(line string) {
	if line == "" {
		return
	}
	surely := strings.HasPrefix(line, "***") || strings.HasPrefix(line, "@@")
	if mark, file := marked(line); mark != "" {
		surely = mark[0] != '-'
		p.begins = p.begins || !p.read
		p.file(mark, file)
	}
	p.holds, p.begins, p.read = p.holds || surely, p.begins || surely && !p.read, true
}

// file takes the file, or the files, that a line names behind its mark.
func (p *patch) file(mark, file string) {
	switch mark[0] {
	case '-':
		p.olds = append(p.olds, file)
	case '+':
		p.prefixed(file)
	case 'd': // of git
		both := strings.Fields(file)
		for _, file := range both {
			p.prefixed(file)
		}
		p.names.Unclear = p.names.Unclear || len(both) != 2
	case '*':
		if !strings.HasSuffix(mark, ":") { // of a context diff, or of something else
			if strings.Contains(file, "/") {
				p.prefixed(file)
			}
			return
		}
		fallthrough
	default:
		p.names.Unclear = p.names.Unclear || strings.HasPrefix(file, `"`) && strings.Contains(file, `\`) // it has escapes
		p.add(file)
		for _, arrow := range []string{"->", "=>"} {
			if from, to, found := strings.Cut(file, arrow); found {
				p.add(strings.TrimFunc(from, unseen))
				p.add(strings.TrimFunc(to, unseen))
			}
		}
		if name, _, found := strings.Cut(file, "\t"); found {
			p.add(name)
		}
	}
}

// prefixed takes the name of a file that may stand behind a/ or b/, and before a time.
func (s *search) prefixed(file string) {
	file, _, _ = strings.Cut(file, "\t")
	file = strings.TrimFunc(file, unseen)
	switch _, rest, _ := strings.Cut(file, "/"); {
	case file == "/dev/null":
	case strings.HasPrefix(file, `"`): // it has escapes
		s.names.Unclear = true
	default:
		s.add(file)
		s.add(rest)
	}
}

// marked is how a line of a patch begins that names a file, in small letters, and the rest of it; "" for any other. It takes more than one program does: any
// letter case, any white space, any words before the colon.
func marked(line string) (mark, file string) {
	if !strings.ContainsRune("-+*dDrRcCiI", rune(line[0])) {
		return "", ""
	}
	begin := fileMark().FindString(line)
	return strings.ToLower(strings.TrimFunc(begin, unseen)), line[len(begin):]
}

var fileMark = sync.OnceValue(func() *regexp.Regexp {
	words := `(---_|\+\+\+_|diff_+--git_|(?:rename|copy)_+(?:from|to)_|\*\*\*_*[a-z](?:[a-z]|_)*:|\*\*\*_|index:)_*`
	return regexp.MustCompile(`(?i)^` + strings.ReplaceAll(words, "_", `[\s\v\x{85}\p{Z}\p{Cf}]`))
})

// breaksLine reports whether some programs, as those in Python, end a line at a character where others do not.
func breaksLine(r rune) bool {
	return strings.ContainsRune("\v\f\r\x1c\x1d\x1e\u0085\u2028\u2029", r)
}
