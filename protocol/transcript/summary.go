package transcript

import (
	"bytes"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/tidwall/gjson"

	"nexus.internal/protocol/strict"
)

// Summary is what there is to say of a session without its conversation.
type Summary struct {
	Header   Header
	Settings Settings
	// Messages is how many the conversation has.
	Messages uint64
}

// counted are the beginnings of records that Summarize need not decode.
var counted = [][]byte{[]byte(`{"type":"message",`), []byte(`{"type":"partial",`), []byte(`{"type":"turn_end",`)}

// Summarize reads a session as Parse does, and many times faster: of messages
// it sees only that they are JSON. A session that has no header yet is an empty
// Summary. The errors are those of Parse.
func Summarize(data []byte) (Summary, error) {
	var messages uint64
	state := &State{}
	_, err := state.walk(data, func(line []byte, whole bool) error {
		for i, beginning := range counted {
			if state.Empty() || !whole || !bytes.HasPrefix(line, beginning) { // a line without an end may be torn
				continue
			}
			if !utf8.Valid(line) || !gjson.ValidBytes(line) {
				return &strict.Error{Problem: "is no JSON"}
			}
			if i == 0 {
				messages++
			}
			return nil
		}
		record, err := Decode(line)
		if err != nil {
			return err
		}
		switch r := record.(type) {
		case Message: // written by somebody else
			messages++
			return nil
		case Compaction:
			if r.Dropped > messages {
				return fmt.Errorf("compaction of %d messages, there are %d", r.Dropped, messages)
			}
			messages += 1 - r.Dropped
			return nil
		case Reset:
			messages = 0
		default:
		}
		return state.Apply(record)
	})
	if err != nil {
		return Summary{}, err
	}
	return Summary{Header: state.Header, Settings: state.Settings, Messages: messages}, nil
}

// Renamed returns a copy of a session under another header: the first line gives
// way to that of header, and what stands after the last newline is left out. It
// fails if data does not begin with a whole header.
func Renamed(data []byte, header Header) ([]byte, error) {
	first, rest, whole := bytes.Cut(data, []byte{'\n'})
	if !whole {
		return nil, &LineError{Line: 1, Err: ErrNoSession}
	}
	record, err := Decode(first)
	if err != nil {
		return nil, &LineError{Line: 1, Err: fmt.Errorf("%w: %w", ErrNoSession, err)}
	}
	if _, ok := record.(Header); !ok {
		return nil, &LineError{Line: 1, Err: errors.New("the header is missing")}
	}
	line, err := Append(nil, header)
	if err != nil {
		return nil, err
	}
	return append(append(line, '\n'), rest[:bytes.LastIndexByte(rest, '\n')+1]...), nil
}
