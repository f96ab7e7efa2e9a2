// Package file holds the tools on files: read_file, list_directory, write_file,
// edit_file, apply_patch, move_file, copy_file, delete_file, glob and search_text.
//
//	tools := file.Tools(file.Options{Spaces: spaces})
//
// Each call may touch what its Space says. A path is first followed to where it
// leads, then opened by way of an os.Root on a directory of the space, so that
// the kernel keeps it there; and what is open is checked by the path that the
// kernel knows it by. So nothing else is read, listed or changed, though somebody
// moves symbolic links about meanwhile. Hard links and mounts are not noticed.
// FIFOs, sockets and devices are refused without waiting.
//
// The tools are safe for concurrent use and start no goroutine. Two writes to
// one file at the same time leave one of both, whole, and of two edits none is
// lost. All changes go through carryOut. Text may be UTF-8, UTF-16 with its mark, or Windows-1252, and stays so.
// What walks a tree or matches a pattern ends within 50 ms of its context, as
// long as the file system answers. The contract is SPEC.md §4.4.
package file
