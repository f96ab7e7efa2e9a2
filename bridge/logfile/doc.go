// Package logfile keeps a log in a file that is never larger than MaxFile, and as
// many older ones as Kept: the record of who changed what, and the log of a server
// that runs in the background (SPEC §6.6).
//
//	log, err := logfile.Open(path, logfile.Options{Durable: true})
//	err = log.Write(line)
//	err = log.Sync()
//	err = log.Close()
//
// Tiers are three logs in one, for lines of principals that do not trust each other.
//
// A Log is safe for concurrent use. It writes what it is given, each line by one
// write: a line survives the server's death at once, and that of the machine
// after Sync. Whose lines are oldest loses them. It follows no link.
package logfile
