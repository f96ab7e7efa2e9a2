package safefile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// ExpandTilde is a path in which ~, alone or before a slash, stands for the home of the process's
// user. A path that begins with ~NAME is an error: in a shell it may stand for the home of
// another user.
func ExpandTilde(path string) (string, error) {
	rest, ok := strings.CutPrefix(path, "~")
	switch {
	case !ok:
		return path, nil
	case rest != "" && rest[0] != '/':
		return "", fmt.Errorf("%s: ~ stands for a home only alone or before a slash; for a file of that name, write ./%s", path, path)
	}
	home, err := os.UserHomeDir()
	if err != nil || !filepath.IsAbs(home) {
		return "", errors.New(path + ": the home that ~ stands for is not known here; for a directory of that name, write ./" + path)
	}
	return filepath.Clean(home) + rest, nil
}
