package sessions

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"nexus.internal/protocol"
	"nexus.internal/protocol/rights"
	"nexus.internal/protocol/transcript"
)

// maxLostNamed is how many files that are lost are named to the model.
const maxLostNamed = 50

// LostCwd is a working directory that an agent has lost with its machine.
type LostCwd struct {
	Node string // the machine
	To   string // the directory in its place: absolute, without links
	On   string // the machine that has it
}

// LoseCwd has a saved session, which no process has open, go on in another directory than its own, which is lost: it works there, what it
// may do in the lost one it may do there, and its model is told. It fails with an *Error of ErrNotFound or ErrInUse, or if the session cannot be
// read; then nothing has changed.
func LoseCwd(c *Catalogue, id string, lost LostCwd) error {
	return c.amend(id, func(session io.ReadSeeker) ([]transcript.Record, error) {
		s, _, err := transcript.Parse(session)
		if err != nil {
			return nil, err
		}
		return lost.records(s, time.Now().UTC()), nil
	})
}

// records are those that follow what a session amounts to.
func (l LostCwd) records(s *transcript.State, now time.Time) []transcript.Record {
	records := s.Repair(now)
	from := protocol.Value(s.Settings.Cwd)
	move := func(p *protocol.Permissions) *protocol.Permissions {
		if p == nil || from == "" {
			return p
		}
		return new(rights.Moved(*p, from, l.To))
	}
	grantedCwd := &l.To
	if s.Settings.GrantedCwd == nil { // of an earlier version: it is among the paths
		grantedCwd = nil
	}
	records = append(records, transcript.Settings{
		Cwd: &l.To, GrantedCwd: grantedCwd, Permissions: move(s.Settings.Permissions), Ceiling: move(s.Settings.Ceiling), Granted: move(s.Settings.Granted),
		LostCwd: &protocol.LostCwd{Cwd: from, Node: l.Node, At: now}, At: now,
	})
	if void := voidAllowances(s.Allowances, from); len(void) > 0 {
		records = append(records, transcript.Revocation{Allowances: void, At: now})
	}
	if len(s.Messages) == 0 { // it knows of no file
		return records
	}
	turn := uuid.NewString()
	return append(records,
		transcript.Message{Message: protocol.Message{Role: protocol.RoleUser, Content: l.note(s.Messages, from), TurnID: turn, Source: "nexus", At: now}},
		transcript.TurnEnd{TurnID: turn, Outcome: transcript.Outcome(protocol.StopCompleted), At: now},
	)
}

// voidAllowances are those for a directory that is lost, or one that has it in it.
func voidAllowances(all []protocol.Allowance, lost string) (void []protocol.Allowance) {
	for _, a := range all {
		if a.Dir != "" && lost != "" && (rights.Within(lost, a.Dir) || rights.Within(a.Dir, lost)) {
			void = append(void, a)
		}
	}
	return void
}

// note is what the model is told.
func (l LostCwd) note(messages []protocol.Message, from string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "[This is a note of nexus, and no message of a person. The machine %s, on which you worked, is lost, and your working directory %s with it. "+
		"You go on at the machine %s, in %s, which is empty. All files of the lost directory are gone.", l.Node, cmp.Or(from, "there"), l.On, l.To)
	if files := filesBelow(messages, from); len(files) > 0 {
		named := files[:min(len(files), maxLostNamed)]
		fmt.Fprintf(&b, " Among them are those that your tools made or changed: %s", strings.Join(named, ", "))
		if more := len(files) - len(named); more > 0 {
			fmt.Fprintf(&b, ", and %d more", more)
		}
		b.WriteByte('.')
	}
	b.WriteString(" Programs that you had started there do not run any more, and other files of that machine are not reached. Make anew what you still need.]")
	return b.String()
}

// filesBelow are the files in a directory that calls made or changed, in order.
func filesBelow(messages []protocol.Message, dir string) (files []string) {
	for _, m := range messages {
		for _, path := range m.Changed {
			if dir != "" && rights.Within(dir, path) {
				files = append(files, path)
			}
		}
	}
	slices.Sort(files)
	return slices.Compact(files)
}
