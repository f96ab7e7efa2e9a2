package terminal

import (
	"os"
	"path/filepath"
	"strings"

	"nexus.internal/cmd/internal/cli"
	"nexus.internal/protocol"
)

// attachments are the files that a text mentions, as @PATH, with what is in them; nil for none.
// What is no file is but a word.
func attachments(cwd, text string) (*[]protocol.Attachment, error) {
	var paths []string
	for word := range strings.FieldsSeq(text) {
		path, ok := strings.CutPrefix(word, "@")
		if !ok || path == "" {
			continue
		}
		path = resolved(cwd, strings.TrimRight(path, ",;:!?)\"'"))
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			paths = append(paths, path)
		}
	}
	return attached(paths)
}

// attached are files with what is in them; by their paths alone, those that a request has no room for:
// the agent reads them itself.
func attached(paths []string) (*[]protocol.Attachment, error) {
	small, rest := []string(nil), []protocol.Attachment(nil)
	room := int64(cli.MaxAttached)
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			return nil, err
		}
		if in := (info.Size() + 2) / 3 * 4; in <= room { // in base64
			small, room = append(small, path), room-in
		} else {
			rest = append(rest, protocol.Attachment{Path: path})
		}
	}
	list, err := cli.Attachments(small)
	if err == nil && rest != nil {
		rest = append(protocol.Value(list), rest...)
		list = &rest
	}
	return list, err
}

// resolved is a path as a person types it: from the directory, or from the home by ~.
func resolved(cwd, path string) string {
	if rest, ok := strings.CutPrefix(path, "~/"); ok {
		if home, err := os.UserHomeDir(); err == nil {
			return filepath.Join(home, rest)
		}
	}
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(cwd, path)
}
