package transcript

import (
	"io"
	"strings"
)

// A session is unnamed if its file is called by its session id, its header bears
// that id, and no agent of a server has gone on with it: a child that was started
// without a session's name began it (SPEC §4.6). An agent of a server keeps files
// beside its session, such as its events; a child alone keeps images and a home there.

// HomeSuffix ends the name of the directory beside a session that its programs have as HOME.
const HomeSuffix = ".home"

// UndoSuffix ends the name of the directory beside a session with what files were before its
// tools changed them.
const UndoSuffix = ".undo"

// MaybeUnnamed gives the names of sessions that may be unnamed, by the names of all
// files in their directory: each has the form of a session id and nothing but images
// and the home of its programs beside it. Its header tells the rest.
func MaybeUnnamed(files []string) map[string]bool {
	found := map[string]bool{}
	for _, file := range files {
		if name, ok := strings.CutSuffix(file, ".jsonl"); ok && IsSessionID(name) {
			found[name] = true
		}
	}
	for _, file := range files {
		if name, rest, _ := strings.Cut(file, "."); rest != "jsonl" && rest != "files" && "."+rest != HomeSuffix && "."+rest != UndoSuffix {
			delete(found, name)
		}
	}
	return found
}

// Unnamed reports whether the header that r begins with bears the session id name.
func Unnamed(name string, r io.Reader) bool {
	line, _, whole, err := lines(r, maxLine, 4<<10)()
	if err != nil || !whole {
		return false
	}
	record, err := Decode(line)
	header, ok := record.(Header)
	return err == nil && ok && header.SessionID == name
}

// IsSessionID reports whether name has the form of a session id, which is a UUID in lower case.
func IsSessionID(name string) bool {
	if len(name) != 36 {
		return false
	}
	for i, c := range []byte(name) {
		dash := i == 8 || i == 13 || i == 18 || i == 23
		hex := '0' <= c && c <= '9' || 'a' <= c && c <= 'f'
		if dash != (c == '-') || !dash && !hex {
			return false
		}
	}
	return true
}
