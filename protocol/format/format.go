package format

import (
	"fmt"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Kind is one kind of values.
type Kind struct {
	// Name is what messages call one value.
	Name string
	// Reads is the latest format that this program reads. It writes that one, or an earlier one where others do not read it.
	Reads int
}

// The kinds of values that the machines of a cluster keep or tell each other.
var (
	Claim      = Kind{"a claim on an agent", 1}
	ToldClaim  = Kind{"a claim that a machine tells of", 1}
	Beat       = Kind{"what a machine says of itself", 1}
	Mirror     = Kind{"a message of the mirror", 2}
	About      = Kind{"what a machine says of an agent", 1}
	Held       = Kind{"the holder of a name", 1}
	Connection = Kind{"a connection between machines", 1}
	Principal  = Kind{"for whom a machine passes on a call", 1}
	Keys       = Kind{"the list of keys", 1}
	Key        = Kind{"a key", 1}
	Rates      = Kind{"what a machine tells of rates", 1}
	Removed    = Kind{"the list of removed machines", 1}
	Settings   = Kind{"the file of what is said of this machine", 1}
	Note       = Kind{"the note on the files of an agent", 1}
	Accepted   = Kind{"the list of accepted prompts", 1}
)

// LaterError says that a value has a later format than this program reads.
type LaterError struct {
	Kind
	Format int
}

func (e *LaterError) Error() string {
	return fmt.Sprintf("%s has format %d, and this program reads %d: upgrade it", e.Name, e.Format, e.Reads)
}

// Check is a *LaterError if text has a later format than this program reads, else nil, also if text is no value of the kind.
func (k Kind) Check(text []byte) error {
	var said struct {
		Format jsontext.Value `json:"format"`
	}
	if err := json.Unmarshal(text, &said); err != nil {
		return nil //nolint:nilerror // plain text, or damaged, as its reader finds
	}
	if n, err := strconv.Atoi(string(said.Format)); err == nil && n > k.Reads {
		return &LaterError{k, n}
	}
	return nil
}

// Decode decodes a value. The error is a *LaterError if it has a later format than this program reads; then nothing is decoded.
func (k Kind) Decode(text []byte, into any, options ...json.Options) error {
	if err := k.Check(text); err != nil {
		return err
	}
	return json.Unmarshal(text, into, options...)
}
