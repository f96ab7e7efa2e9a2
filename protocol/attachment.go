package protocol

import (
	"encoding/base64"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Bounds of what an [Attachment] brings.
const (
	// MaxAttachedText is how much text one may bring, in bytes.
	MaxAttachedText = 256 << 10
	maxAttachedName = 255 // bytes
)

// Attachment is a file that goes with a [Prompt]: one that the child reads from its own file
// system, within its sandbox, or one that the parent brings. It has one of Path, Text and Data.
type Attachment struct {
	// The absolute path, without a ".." segment.
	Path string `json:"path,omitzero" wire:"default"`
	// What people call the file; the base name of the path if missing. Text and data need one.
	Name *string `json:"name,omitzero"`
	// The MIME type, as a hint; if missing, the agent looks for itself.
	Mime *string `json:"mime,omitzero"`
	// The text of the file, up to 256 KiB of it.
	Text *string `json:"text,omitzero"`
	// The bytes of the file in base64: those of an image, or of a text.
	Data *string `json:"data,omitzero"`
}

// Check reports whether the attachment keeps the rules of SPEC §3.8, as far as that can be told
// without the file.
func (a Attachment) Check() error {
	given := 0
	for _, one := range []bool{a.Path != "", a.Text != nil, a.Data != nil} {
		if one {
			given++
		}
	}
	switch {
	case given != 1:
		return errors.New("attachment: want one of path, text and data")
	case a.Path != "" && !path.IsAbs(a.Path):
		return fmt.Errorf("attachment path %q is not absolute", a.Path)
	case slices.Contains(strings.Split(a.Path, "/"), ".."):
		return fmt.Errorf("attachment path %q contains a .. segment", a.Path)
	}
	switch name := Value(a.Name); {
	case name == "" && a.Path == "":
		return errors.New("attachment: text and data need a name")
	case !isAttachedName(name):
		return fmt.Errorf("attachment name: want at most %d bytes without control characters", maxAttachedName)
	case !isAttachedName(Value(a.Mime)):
		return fmt.Errorf("attachment mime: want at most %d bytes without control characters", maxAttachedName)
	case len(Value(a.Text)) > MaxAttachedText:
		return fmt.Errorf("attachment %s has %d bytes of text, at most %d are taken", name, len(*a.Text), MaxAttachedText)
	}
	_, err := a.Content()
	return err
}

func isAttachedName(name string) bool {
	return len(name) <= maxAttachedName && utf8.ValidString(name) && !strings.ContainsFunc(name, unicode.IsControl)
}

// Content is what the parent brings; nil for a path. The error says that data is no base64.
func (a Attachment) Content() ([]byte, error) {
	if a.Data == nil {
		return []byte(Value(a.Text)), nil
	}
	content, err := base64.StdEncoding.DecodeString(*a.Data)
	if err != nil {
		return nil, fmt.Errorf("attachment %s is not in base64: %w", Value(a.Name), err)
	}
	return content, nil
}

// Described is the attachment as a conversation names it: without what it brings, which is in
// the message.
func (a Attachment) Described() Attachment {
	a.Text, a.Data = nil, nil
	return a
}
