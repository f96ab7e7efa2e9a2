// Package safefiletest helps tests of what reads files as long as a context lasts.
package safefiletest

import "context"

// Ending is a context that ends when it is asked for the time after the last one. One goroutine uses it.
type Ending struct {
	context.Context
	Asked, Last int // how often it was asked, and may be before it ends
}

// Err implements [context.Context].
func (e *Ending) Err() error {
	if e.Asked++; e.Asked > e.Last {
		return context.Canceled
	}
	return nil
}
