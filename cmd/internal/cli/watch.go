package cli

import "os"

// watch waits for a server to end. A server holds a lock on its directory for as
// long as its process lives, and the system gives it back when it ends, however
// it ends.
type watch struct{ file *os.File }

// watchServer begins before the server is asked to end, since it removes its
// directory (sessions.RunDir) at its end.
func watchServer(dir string) watch {
	file, err := os.Open(dir)
	if err != nil {
		return watch{} // a server of another home: there is nothing to watch
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
