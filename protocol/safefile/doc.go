// Package safefile opens, locks and replaces the files of nexus, and uses nothing that
// somebody put in their place.
//
//	file, err := safefile.Open(path, os.O_RDWR|os.O_CREATE) // a regular file; no link
//	err = safefile.Lock(file)                               // ErrLocked if another process has it
//	data, err := safefile.Read(path, 64<<10)                // at most that many bytes
//	err = safefile.Replace(path, data, true)                // in one step, and durable
//	err = safefile.CheckHome(home)                          // nobody else may change what is trusted
//	dir, err := safefile.MakeDir(parent)                    // a directory of this process alone
//
// Open refuses links, directories, pipes, sockets and devices, and waits for none of
// them. It follows links among the directories of a path: a home may be one. OpenRealRoot,
// for a directory that was checked, follows none at all. OpenLinked
// and OpenIn also follow links to the file, OpenIn none that leads out of its root. OpenNamed,
// for what a person names, opens pipes too that the process was started with. OpenIn
// and ReadOwn refuse what belongs to another user: their directory may be one that all may
// write. A file that is larger than it can be is not read.
//
// A lock is one of flock(2): it belongs to the open file and ends with it, however the
// process ends. MakeDir locks a directory the same way: one that nobody has locked is of
// a dead process, and the next MakeDir or SweepDirs in the same parent removes it, so the
// parent holds nothing else. Where the system has no flock, locks are always given, and
// nothing is removed.
//
// All functions are safe for concurrent use, also by several processes, but one process
// at a time replaces a file. The contract is SPEC.md §2.1.
package safefile
