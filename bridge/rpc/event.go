package rpc

import (
	"bytes"
	"strings"
)

// AppendEvent appends one event in the form of text/event-stream; id is "" for an
// event without one. data is one JSON value.
func AppendEvent[ID string | []byte](buf []byte, id ID, name string, data []byte) []byte {
	if len(id) > 0 {
		buf = append(buf, "id: "...)
		buf = append(buf, id...)
		buf = append(buf, '\n')
	}
	buf = append(buf, "event: "...)
	buf = append(buf, oneLine(name)...)
	buf = append(buf, "\ndata: "...)
	start := len(buf)
	buf = append(buf, data...)
	if bytes.IndexByte(data, '\r') >= 0 || bytes.IndexByte(data, '\n') >= 0 {
		// Between JSON's tokens a line break is white space, within one it
		// cannot be; in an event stream it would end the line.
		for i, b := range buf[start:] {
			if b == '\r' || b == '\n' {
				buf[start+i] = ' '
			}
		}
	}
	return append(buf, "\n\n"...)
}

// oneLine is the name of an event, or "unknown" if it would break the line.
func oneLine(name string) string {
	if name == "" || strings.ContainsAny(name, "\r\n\x00") {
		return "unknown"
	}
	return name
}
