package format

import (
	"errors"
	"slices"
	"sync"
)

// Teller is told once of each kind and format that is met. It is safe for concurrent use, and does not wait.
type Teller interface{ Met(e *LaterError) }

// Later is what a process has met of later formats than it reads. Its methods may be called from any goroutine; a nil one notes nothing.
type Later struct {
	teller Teller // nil is told nothing

	mu  sync.Mutex // guards met
	met []LaterError
}

// NewLater returns one that has met nothing. A nil Teller is told nothing.
func NewLater(t Teller) *Later { return &Later{teller: t} }

// Note returns err. If that is a *LaterError, the warnings have it from now on, and the Teller is told if they did not have it before.
func (l *Later) Note(err error) error {
	e, ok := errors.AsType[*LaterError](err)
	if l == nil || !ok {
		return err
	}
	l.mu.Lock()
	known := slices.Contains(l.met, *e)
	if !known && len(l.met) < maxMet {
		l.met = append(l.met, *e)
	}
	l.mu.Unlock()
	if !known && l.teller != nil {
		l.teller.Met(e)
	}
	return err
}

// maxMet bounds what is remembered.
const maxMet = 64

// Warnings are all that was met, a sentence each.
func (l *Later) Warnings() (all []string) {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.met {
		all = append(all, e.Error())
	}
	return all
}
