// Package workplace is where an agent works: its directory, what it may do
// there, and the tools that follow from both.
//
//	w, err := workplace.Open(workplace.Options{Cwd: dir, Permissions: asked, Parent: parent})
//	registry := w.Tools()          // for the next turn
//	err = w.SetCwd(dir, protocol.WithinCeiling)            // holds from the turn after
//	err = w.SetPermissions(asked, protocol.WithinCeiling)  // holds at once
//
// A Workplace is safe for concurrent use and starts no goroutine. A turn that
// runs keeps the tools and the directory it began with, but each of its calls is
// judged by the permissions of the moment, also while it waits for an approval.
// Nobody can move it beyond its ceiling. See SPEC.md §4.5.
package workplace
