// Package audit keeps the record of who changed what (SPEC §6.6): lines of JSON
// in a file that is never larger than MaxFile, and as many older ones as Kept.
//
//	log := audit.Open(path)
//	err := log.Write(line)
//	err = log.Close()
//
// A Log is safe for concurrent use. It writes what it is given, each line by one
// write, and does not sync: a line survives the server's death, and not always
// that of the machine. Whose lines are oldest loses them.
package audit
