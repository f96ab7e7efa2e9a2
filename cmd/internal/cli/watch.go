package cli

import (
	"os"
)

// watch waits for a server to end. A server holds a lock on its key file for as
// long as its process lives, and the system gives it back when it ends, however
// it ends.
type watch struct{ file *os.File }

// watchServer begins before the server is asked to end, since it removes the
// file at its end.
func watchServer(keyPath string) watch {
	file, err := os.Open(keyPath)
	if err != nil {
		return watch{} // a key from elsewhere: there is nothing to watch
	}
	return watch{file}
}

// wait returns once the server is gone; false if there is no telling.
func (w watch) wait() bool {
	if w.file == nil {
		return false
	}
	defer w.file.Close()
	return awaitLock(w.file) == nil
}

func (w watch) forget() {
	if w.file != nil {
		w.file.Close()
	}
}

// HoldServer takes the lock that says that this process is the server whose key
// lies at keyPath. It is held until the file is closed.
func HoldServer(keyPath string) (*os.File, error) {
	file, err := os.Open(keyPath)
	if err != nil {
		return nil, err
	}
	if err := takeLock(file); err != nil {
		file.Close()
		return nil, err
	}
	return file, nil
}
