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
	// Objects says that this message, or one before it, may name objects that are there.
	Objects bool `json:"objects,omitzero"`
}

// earlier is the format of messages without objects, which earlier programs read.
const earlier = 1

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
	// Object is the name of the object that has the bytes, which do not follow the line then, and SHA256 their sum in hexadecimal digits. It is "" if they do. From format 2 on.
	Object string `json:"object,omitzero"`
	SHA256 string `json:"sha256,omitzero"`
}

func (m message) encode(pieces [][]byte) ([]byte, error) {
	m.Format = earlier
	if m.Objects {
		m.Format = format.Mirror.Reads
	}
	line, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	return slices.Concat(append([][]byte{line, {'\n'}}, pieces...)...), nil
}

// decode takes a message apart: pieces are those of its changes, empty where an object has the bytes.
func decode(data []byte) (m message, pieces [][]byte, err error) {
	line, rest, ok := bytes.Cut(data, []byte{'\n'})
	if !ok {
		return m, nil, fmt.Errorf("a message of the mirror has no head: %w", ErrUnreadable)
	}
	if err := format.Mirror.Decode(line, &m); err != nil {
		return m, nil, fmt.Errorf("%w: %w", err, ErrUnreadable)
	}
	for _, c := range m.Changes {
		follow := c.Size
		if c.Object != "" {
			follow = 0
		}
		if c.Size < 0 || follow > len(rest) || c.At < 0 || c.Object != "" && (c.Size > maxObject || c.Patch) {
			return m, nil, fmt.Errorf("a message of the mirror is damaged at %q: %w", c.Path, ErrUnreadable)
		}
		pieces = append(pieces, rest[:follow])
		rest = rest[follow:]
	}
	return m, pieces, nil
}
