// Package backup saves a home in one file, and makes a home of such a file.
//
//	report, err := backup.Write(ctx, file, home, backup.Options{})
//	report, err = backup.Restore(ctx, file, other)
//
// A backup has what a home keeps: the configuration, saved sessions with all that
// belongs to them, plans, the audit log and the hashes of keys (SPEC §2.4). It has
// nothing of what belongs to a server that runs: its key, lock, sockets and
// records of processes. A server may work in the home meanwhile.
//
// The file is a tar archive, packed by gzip, of regular files. Its first member
// says what it is, its last one how much was before; with gzip's checksum, a file
// that is cut off or damaged is found out. Restore writes beside the new home and
// gives it its name when all was read. It follows no link, makes none, takes no mode
// from the archive, and reads no more than maxFiles and maxBytes.
package backup
