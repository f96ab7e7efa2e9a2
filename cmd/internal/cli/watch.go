package cli

import (
	"os"

	"nexus.internal/bridge/homelock"
	"nexus.internal/protocol/safefile"
)

// watch waits for a server to end. A server holds the lock of its home for as
// long as its process lives, and the system gives it back when it ends, however
// it ends.
type watch struct{ file *os.File }

// watchServer begins before the server on port is asked to end, since from then
// on another one may have the home.
func watchServer(home string, port int) watch {
	file, err := safefile.Open(homelock.Path(home), os.O_RDONLY)
	if err != nil {
		return watch{} // a server of another home: there is nothing to watch
	}
	if homelock.Read(file).Port != port {
		file.Close()
		return watch{}
	}
	return watch{file}
}

// wait returns once the server is gone; false if there is no telling.
func (w watch) wait() bool {
	if w.file == nil {
		return false
	}
	defer w.file.Close()
	return homelock.Wait(w.file) == nil
}

func (w watch) forget() {
	if w.file != nil {
		w.file.Close()
	}
}
