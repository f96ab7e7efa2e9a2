package toolenv

import (
	"slices"
	"strconv"

	"nexus.internal/child/permission"
	"nexus.internal/protocol"
	"nexus.internal/protocol/textcut"
)

// maxOptionName bounds what is told of an option of a program of another make, in bytes.
const maxOptionName = 200

// session is what a yes for the session comes to under p. It is made once for a question, so that what is told and
// what is recorded are the same whatever becomes of the files meanwhile.
func (r callRequest) session(p permission.Policy) permission.Session {
	var s permission.Session
	// The names that programs of other makes give what they do stand for anything: an allowance for one
	// would be for all that it does.
	if !r.program || r.call.Action != protocol.ActionExternal {
		c := r.call
		if r.onlyAdds() { // a yes to it is none to deletions
			c.Tool = writeName
		}
		s = p.Grant(c, r.coversBesides(c.Tool), isDir)
	}
	i := slices.IndexFunc(r.options, forSession)
	switch {
	case i < 0:
	case s.Covers == "":
		s.Covers = "what the program itself remembers by its option " + strconv.Quote(textcut.Clip(r.options[i].Name, maxOptionName))
	default:
		s.Covers += "; if an option of the program is named, also what the program remembers by it"
	}
	return s
}

// onlyAdds reports whether the call is a patch that only adds files: it writes as write_file does.
func (r callRequest) onlyAdds() bool {
	return r.call.Tool == patchName && !r.program && len(r.scope.AlsoUnder) == 0
}

// coversBesides are, in words, the calls that an allowance of a tool covers besides those of the tool (underSame, under).
func (r callRequest) coversBesides(tool string) (also []string) {
	for _, other := range []string{"job_start", "copy_file"} { // an input of a job is never covered
		if allowedAs(other) == tool {
			also = append(also, other)
		}
	}
	if tool == writeName && !r.program {
		also = append(also, "patches that only add files")
	}
	return also
}

// forSession reports whether an option of a program of another make is a yes for the session, which
// the program remembers by itself.
func forSession(o protocol.PermissionOption) bool { return o.Kind == protocol.AllowSession }
