// Package file holds the tools on files: read_file, list_directory, write_file,
// edit_file, glob and search_text, all of them inside one directory.
//
//	tools, closer, err := file.Tools("/home/me/project")
//	defer closer.Close()
//
// Nothing outside the directory can be read, listed or written: every access
// goes through an os.Root, so ".." and symbolic links that lead out are refused,
// also while somebody else moves them about. An absolute path is taken as one
// inside the directory if it begins with the directory's own path. Hard links
// are not noticed. FIFOs, sockets and devices are refused without waiting.
//
// The tools are safe for concurrent use and start no goroutine. Two writes to
// one file at the same time leave one of both, whole, and of two edits none is
// lost. What walks a tree or matches a pattern ends within 50 ms of its context,
// as long as the file system answers. The contract is SPEC.md §4.4.
package file
