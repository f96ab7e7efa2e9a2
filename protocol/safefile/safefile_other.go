//go:build !unix

package safefile

import (
	"io/fs"
	"os"
)

const noFollow, nonBlock = 0, 0

func SyncDir(string) error         { return nil }
func Lock(*os.File) error          { return nil }
func WaitLock(*os.File) error      { return nil }
func Release(file *os.File) error  { return file.Close() }
func Ours(fs.FileInfo) bool        { return false } // so that nothing is removed
func OursOrRoots(fs.FileInfo) bool { return true }  // owners and modes say nothing here
func OwnerWrites(fs.FileInfo) bool { return true }
