package mirror

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"nexus.internal/protocol/format"
)

// message is what a message of the stream begins with, a line of JSON. The bytes of its changes follow, one after
// another.
type message struct {
	Format int `json:"format"`
	// Epoch is the owner's and Number how many messages that has sent, this one among them.
	Epoch  uint64 `json:"epoch"`
	Number uint64 `json:"number"`
	// Writer is chance, of the Mirror that has sent it: two of one epoch, as of a process and of the one after its death, have the same numbers. It is "" from earlier versions.
	Writer string `json:"writer,omitzero"`
	// Begins says that the files are shipped whole from here on, and Complete that they were.
	Begins   bool     `json:"begins,omitzero"`
	Complete bool     `json:"complete,omitzero"`
	Changes  []change `json:"changes,omitempty"`
	// About is what the owner says of the agent.
	About jsontext.Value `json:"about,omitempty"`
	// Log is how far the agent's log is shipped with this message.
	Log extent `json:"log,omitzero"`
}

// extent is how far a log goes: its last file, and how many bytes that has. The zero value is that of none.
type extent struct {
	Path string `json:"path"`
	Size int64  `json:"size"`
}

// change is of one file.
type change struct {
	Path string `json:"path"`
	// At is where the Size bytes stand that follow the line. At 0 they begin the file anew, unless they take the place
	// of others, as Patch says.
	At    int64 `json:"at,omitzero"`
	Size  int   `json:"size,omitzero"`
	Patch bool  `json:"patch,omitzero"`
	// Gone says that the file is no more.
	Gone bool `json:"gone,omitzero"`
}

func (m message) encode(pieces [][]byte) ([]byte, error) {
	m.Format = format.Mirror.Reads
	line, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	return slices.Concat(append([][]byte{line, {'\n'}}, pieces...)...), nil
}

// decode takes a message apart: pieces are those of its changes.
func decode(data []byte) (m message, pieces [][]byte, err error) {
	line, rest, ok := bytes.Cut(data, []byte{'\n'})
	if !ok {
		return m, nil, fmt.Errorf("a message of the mirror has no head: %w", ErrUnreadable)
	}
	if err := format.Mirror.Decode(line, &m); err != nil {
		return m, nil, fmt.Errorf("%w: %w", err, ErrUnreadable)
	}
	for _, c := range m.Changes {
		if c.Size < 0 || c.Size > len(rest) || c.At < 0 {
			return m, nil, fmt.Errorf("a message of the mirror is damaged at %q: %w", c.Path, ErrUnreadable)
		}
		pieces = append(pieces, rest[:c.Size])
		rest = rest[c.Size:]
	}
	return m, pieces, nil
}
