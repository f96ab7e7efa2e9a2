package permission

import (
	"slices"
	"strconv"
	"strings"
	"unicode"

	"nexus.internal/protocol"
	"nexus.internal/protocol/rights"
)

// maxCovers bounds [Session.Covers], in bytes. What takes more to tell is not allowed for a session: nobody
// would know what it is.
const maxCovers = 2 << 10

// granting makes a [Session]: each allowance together with its words, so that they say the same.
type granting struct {
	call       Call
	allowances []protocol.Allowance
	words      []string // of each allowance
}

func (g *granting) add(a protocol.Allowance, words string) {
	a.Tool, a.Action = g.call.Tool, g.call.Action
	if !slices.ContainsFunc(g.allowances, a.Equal) {
		g.allowances, g.words = append(g.allowances, a), append(g.words, words)
	}
}

func (g *granting) below(dir string) {
	g.add(protocol.Allowance{Dir: dir}, "all in "+name(dir)+" and below")
}

func (g *granting) file(path string) {
	g.add(protocol.Allowance{Dir: path, Alone: true}, "only "+name(path))
}

func (g *granting) programs(dir string) {
	programs := rights.Sorted(slices.Clone(g.call.Programs))
	var words []string
	for _, program := range programs {
		if program == ">" { // which stands for a file that the shell writes
			program = "> (writing files)"
		} else {
			program = name(program)
		}
		words = append(words, program)
	}
	g.add(protocol.Allowance{Dir: dir, Programs: programs},
		"commands of nothing but "+strings.Join(words, ", ")+", in "+name(dir)+" and below, that name nothing elsewhere")
}

func (g *granting) hosts() {
	var words []string
	for _, host := range g.call.Hosts {
		words = append(words, name(host))
	}
	g.add(protocol.Allowance{Hosts: g.call.Hosts}, "all pages of "+strings.Join(words, ", "))
}

func (g *granting) calls() {
	if len(g.call.Programs) == 0 {
		g.add(protocol.Allowance{}, "every call, whatever its input")
		return
	}
	var words []string
	for _, program := range g.call.Programs {
		words = append(words, name(program))
	}
	g.add(protocol.Allowance{Programs: g.call.Programs}, "every call that reaches "+strings.Join(words, ", "))
}

// session is what was added; nothing if it takes too much to tell.
func (g *granting) session(also []string) Session {
	tools := strings.Join(append([]string{name(g.call.Tool)}, also...), ", ")
	covers := tools + ": " + strings.Join(g.words, "; ")
	if len(g.words) == 0 || len(covers) > maxCovers {
		return Session{}
	}
	return Session{g.allowances, covers}
}

// name is what somebody else named, quoted unless it is one plain word.
func name(text string) string {
	odd := func(r rune) bool {
		return !unicode.In(r, unicode.L, unicode.M, unicode.Nd) && !strings.ContainsRune("/._-+@:~=%[]", r)
	}
	if text == "" || strings.HasSuffix(text, ":") || strings.ContainsFunc(text, odd) {
		return strconv.Quote(text)
	}
	return text
}
