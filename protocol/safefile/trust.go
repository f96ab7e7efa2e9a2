package safefile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// CheckTrusted refuses a file or directory, or the one that a link leads to, that belongs to another user than ours and root, or that others may write:
// what it says would be theirs. The error says how to mend it, or is what the system says.
func CheckTrusted(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	return trust(path, info)
}

func trust(path string, info fs.FileInfo) error {
	switch {
	case !OursOrRoots(info):
		return fmt.Errorf("%s is another user's, who may change what it says: %s, or make it yours (chown %d %s) if you trust what it says", path, AsOwner(info), os.Geteuid(), path)
	case !OwnerWrites(info):
		return fmt.Errorf("the mode of %s is %04o, so others may change what it says: look whether they have, then run chmod go-w %[1]s", path, info.Mode().Perm())
	}
	return nil
}

// ReadTrusted is ReadLinked of a file that CheckTrusted does not refuse.
func ReadTrusted(path string, limit int64) ([]byte, error) {
	return readChecked(path, limit, trust)
}

// ReadSecret is ReadLinked of a file with a key: it refuses one that others may know, or may have put there. The error says how to mend it.
func ReadSecret(path string, limit int64) ([]byte, error) {
	return readChecked(path, limit, secret)
}

// CheckSecret says why ReadSecret refuses a file; nil if it does not.
func CheckSecret(path string) error {
	file, err := openChecked(path, secret)
	if err != nil {
		return err
	}
	return file.Close()
}

func secret(path string, info fs.FileInfo) error {
	switch {
	case info.Mode().Perm()&0o077 != 0:
		return fmt.Errorf("the mode of %s is %04o, so others may use it: run chmod 600 %[1]s", path, info.Mode().Perm())
	case !OursOrRoots(info):
		return fmt.Errorf("%s is another user's, who may know the key or have put it there: %s", path, AsOwner(info))
	}
	return nil
}

func readChecked(path string, limit int64, check func(path string, info fs.FileInfo) error) ([]byte, error) {
	file, err := openChecked(path, check)
	return readClose(file, err, limit)
}

// openChecked is OpenLinked of a file that check, which sees the open one, does not refuse.
func openChecked(path string, check func(path string, info fs.FileInfo) error) (*os.File, error) {
	file, err := OpenLinked(path)
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err == nil {
		err = check(path, info)
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}
