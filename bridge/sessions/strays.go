package sessions

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"

	"nexus.internal/bridge/api"
	"nexus.internal/protocol/safefile"
	"nexus.internal/protocol/transcript"
)

// Stray is something among the sessions of a home that is none, and belongs to none.
type Stray struct {
	// Name is that of the session whose place it has, or else its own in quotes, in which nothing acts on a terminal.
	Name   string
	Reason string // why it is none
}

// Strays are all that there are in c, in the order of their names. What a name begins with a dot is of a write that was cut off, or a lock, and not among them.
func Strays(c *Catalogue) (all []Stray, err error) {
	entries, err := os.ReadDir(c.layout.Named)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list the sessions: %w", err)
	}
	for _, entry := range entries {
		name := entry.Name()
		id, session := strings.CutSuffix(name, suffix)
		stray := Stray{Name: strconv.QuoteToASCII(name)}
		switch {
		case session && (!api.ValidAgentID(id) || api.IsTemp(id)):
			stray.Reason = "no session may have that name"
		case session && !entry.Type().IsRegular():
			stray = Stray{id, safefile.ErrNotRegular.Error()}
		case session || strings.HasPrefix(name, ".") || isPart(name):
			continue
		default:
			stray.Reason = "no file of a session may have that name"
		}
		all = append(all, stray)
	}
	slices.SortFunc(all, func(a, b Stray) int { return cmp.Compare(a.Name, b.Name) })
	return all, nil
}

// isPart reports whether a file of that name can belong to a session: as it is, being made, or set aside as damaged.
func isPart(name string) bool {
	name = strings.TrimSuffix(strings.TrimSuffix(name, ".new"), ".damaged")
	for _, part := range []string{imagesSuffix, nextSuffix, transcript.HomeSuffix, transcript.UndoSuffix, ".records", ".usage", ".outcomes", ".events"} {
		if id, ok := strings.CutSuffix(name, part); ok {
			return api.ValidAgentID(id)
		}
	}
	return false
}
