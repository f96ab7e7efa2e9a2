package cli

import (
	"errors"
	"fmt"
	"os"

	"nexus.internal/bridge/homelock"
	"nexus.internal/bridge/sessions"
	"nexus.internal/protocol/homeformat"
	"nexus.internal/protocol/safefile"
)

// HomeLockedError says that another server holds a home.
type HomeLockedError struct {
	Home string
	// PID and Port are those of the holder; 0 if it has not written them yet.
	PID, Port int
}

func (e *HomeLockedError) Error() string {
	if e.Port == 0 {
		return fmt.Sprintf("another nexus server uses %s: stop it, or choose another --home", e.Home)
	}
	return fmt.Sprintf("another nexus server (process %d, port %d) uses %s: stop it with nexus-rpc --home %s shutdown (if it does not answer, %s), or choose another --home",
		e.PID, e.Port, e.Home, e.Home, kill(e.PID))
}

// kill is how to end a server that does not answer.
func kill(pid int) string {
	return fmt.Sprintf("end it with kill %d, or kill -9 %[1]d if it stays", pid)
}

// HomeLock is a server's lock on its home.
type HomeLock struct {
	home string
	file *os.File // locked
}

// LockHome claims a home, whose run directory exists, for this process and the
// server on port, and removes what temporary agents of a server that was killed
// left there, after it has called before, whose error it returns. The claim ends with the process:
// what it starts does not inherit it. It fails with a *HomeLockedError if a server that lives has it,
// and as homeformat.Check. The caller must call Release.
func LockHome(home string, port int, before func() error) (*HomeLock, error) {
	file, err := safefile.Open(homelock.Path(home), os.O_RDWR|os.O_CREATE)
	if err != nil {
		return nil, fmt.Errorf("claim %s: %w", home, err)
	}
	err = homelock.Take(file)
	if errors.Is(err, safefile.ErrLocked) {
		server := homelock.Read(file)
		return nil, errors.Join(&HomeLockedError{Home: home, PID: server.PID, Port: server.Port}, file.Close())
	}
	if err == nil { // a later program's server may have held it until now
		err = homeformat.Check(home)
	}
	if err == nil {
		if err := before(); err != nil {
			return nil, errors.Join(err, file.Close())
		}
		err = sessions.Tidy(home)
	}
	if err == nil {
		err = homelock.Record(file, port)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("claim %s: %w", home, err), file.Close())
	}
	return &HomeLock{home: home, file: file}, nil
}

// Check says that the home is not there any more, or is another one: then
// another server may claim what is there. It may be called at any time until
// Release.
func (h *HomeLock) Check() error {
	there, err := safefile.At(homelock.Path(h.home), h.file)
	if err != nil {
		return fmt.Errorf("the home is not what it was: %w", err)
	}
	if !there {
		return fmt.Errorf("the home is another one now: %s is not what this server has locked", homelock.Path(h.home))
	}
	return nil
}

// Release removes what temporary agents left, if the home is still ours, and
// gives up the claim.
func (h *HomeLock) Release() error {
	var err error
	if h.Check() == nil {
		err = sessions.Tidy(h.home)
	}
	return errors.Join(err, h.file.Truncate(0), h.file.Close())
}

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
