package terminal

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"nexus.internal/cmd/internal/cli"
	"nexus.internal/protocol"
	"nexus.internal/protocol/shellword"
)

// mention is how a text names a file: as @PATH, also in quotes, or with backslashes before white space.
var mention = regexp.MustCompile(`(?:^|[\s\p{Z}])@("[^"\n]+"|'[^'\n]+'|(?:\\.|[^\s\p{Z}])+)`)

// attachments are the files that a text mentions, with what is in them; nil for none. What is no file is but a word; missing are those words that
// look like a path.
func attachments(cwd, text string) (list *[]protocol.Attachment, missing []string, err error) {
	var paths []string
	for _, found := range mention.FindAllStringSubmatch(text, -1) {
		word := found[1]
		if !strings.ContainsAny(word[:1], `"'`) {
			word = strings.TrimRight(word, ",;:!?)\"'")
		}
		names := []string{word}
		if words, err := shellword.Read(word); err == nil && len(words) == 1 && words[0].Text != word {
			names = append(names, words[0].Text)
		}
		path := ""
		for _, name := range names {
			at := resolved(cwd, name)
			if info, err := os.Stat(at); name != "" && err == nil && info.Mode().IsRegular() {
				path = at
				break
			}
		}
		if name := names[len(names)-1]; path != "" {
			paths = append(paths, path)
		} else if strings.ContainsAny(strings.TrimRight(name, "."), "./") || name != word {
			missing = append(missing, name)
		}
	}
	list, err = attached(paths)
	return list, missing, err
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
