//go:build !linux

package sessions

// rename moves a file to where nothing stands; fs.ErrExist if something does.
func rename(from, to string) error { return renameUnlessThere(from, to) }
