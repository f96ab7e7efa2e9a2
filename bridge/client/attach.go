package client

import (
	"encoding/base64"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"nexus.internal/protocol"
	"nexus.internal/protocol/safefile"
)

// maxAttached bounds a file that [Attach] reads, in bytes: a request has at most 1 MiB.
const maxAttached = 1 << 20

// Attach reads a file of the client's for [api.SendParams].Attachments: text as it is, anything
// else as bytes, which the agent takes if they are an image. For what does not fit into a request,
// name a path that the agent can read. The file is a regular one, or what the process was started with
// (/dev/stdin, /dev/fd/N), be it a pipe.
func Attach(path string) (protocol.Attachment, error) {
	name := filepath.Base(path)
	a := protocol.Attachment{Name: &name}
	data, err := safefile.ReadNamed(path, maxAttached)
	if large, ok := errors.AsType[*safefile.TooLargeError](err); ok {
		return a, fmt.Errorf("attach %s: it %w; put it where the agent reads it, and name it in the message", path, large)
	}
	if err != nil {
		return a, fmt.Errorf("attach: %w", err)
	}
	if text := string(data); utf8.ValidString(text) && !strings.ContainsRune(text, 0) {
		a.Text = &text
	} else {
		a.Data = new(base64.StdEncoding.EncodeToString(data))
	}
	if err := a.Check(); err != nil {
		return a, fmt.Errorf("attach %s: %w", path, err)
	}
	return a, nil
}
