package protocol

import "fmt"

// SyntaxError says that a line is not a JSON object we can trust: malformed,
// not an object, not UTF-8, or with a member named twice. ID is the line's id
// where one could be read without doubt, else "".
type SyntaxError struct {
	ID  string
	Err error
}

func (e *SyntaxError) Error() string { return "malformed frame: " + e.Err.Error() }
func (e *SyntaxError) Unwrap() error { return e.Err }

// UnknownTypeError says that the frame's type is not one of this protocol's,
// or that it has none (Type is then "").
type UnknownTypeError struct {
	ID   string
	Type string
	Near string // the command that was probably meant; "" for none
}

func (e *UnknownTypeError) Error() string {
	if e.Type == "" {
		return `frame has no string member "type"`
	}
	if e.Near != "" {
		return fmt.Sprintf("unknown type %.64q: did you mean %q?", e.Type, e.Near)
	}
	return fmt.Sprintf("unknown type %.64q", e.Type)
}

// MemberError says that a member of a frame of a known type is missing or of
// the wrong type. Err is a *strict.Error that names it.
type MemberError struct {
	ID   string
	Type string
	Err  error
}

func (e *MemberError) Error() string { return fmt.Sprintf("%s: %v", e.Type, e.Err) }
func (e *MemberError) Unwrap() error { return e.Err }

// VersionError says that a child speaks another version of the protocol.
type VersionError struct {
	Got uint32
}

func (e *VersionError) Error() string {
	return fmt.Sprintf("child speaks protocol version %d, want %d", e.Got, Version)
}

// The exit statuses of a child that did not start because of its session, whatever
// its parent would change (SPEC §3.9). Their numbers are those of sysexits(3).
const (
	ExitSessionDamaged = 65 // EX_DATAERR: the session cannot be read
	ExitSessionInUse   = 75 // EX_TEMPFAIL: another process has it open
)

// ExitProgram is the exit status of a child whose program of another make has ended by itself; the
// last line on stderr says how. It is that of sysexits(3) for software that is not ours to mend.
const ExitProgram = 70 // EX_SOFTWARE

// ExitHomeNewer is the exit status of every program that finds a home of a later format (SPEC §2.7).
// It is EX_CONFIG of sysexits(3).
const ExitHomeNewer = 78
