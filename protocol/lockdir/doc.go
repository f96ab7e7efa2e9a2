// Package lockdir makes directories that belong to one process for as long as
// it lives, and paths of unix sockets that lie in such a directory.
//
//	dir, err := lockdir.Make(filepath.Join(home, "run", "scratch")) // removes those of dead processes
//	defer dir.Remove()
//	path := dir.Path() // mode 0700
//
// A directory is locked (flock) by its process. A directory that nobody has
// locked belonged to a process that is dead, and the next Make or [Sweep] in the
// same parent removes it; so the parent must hold nothing else. Where the system
// has no flock nothing is swept.
//
// It refuses a parent that is, or leads through, something else than
// directories, and never follows a symbolic link in the parent. All functions
// are safe for concurrent use, also by several processes. The contract is
// SPEC.md §2.1.
package lockdir
