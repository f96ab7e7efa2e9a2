package proctree

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
)

// ListsChildren reports whether the kernel keeps a list of each thread's children.
// Without it, Children looks at every process of the machine.
func ListsChildren() bool {
	_, err := os.Stat(fmt.Sprintf("/proc/self/task/%d/children", os.Getpid()))
	return err == nil
}

// Children lists the processes whose parent is the given one, zombies included.
// With an error there may be more; [Gone] tells whether there is no such process.
// While children end, the kernel may leave others out of its list.
func Children(pid int) ([]int, error) {
	process := filepath.Join("/proc", strconv.Itoa(pid))
	var pids []int
	for range maxPasses {
		found, listed, missed, err := childrenOfThreads(process)
		switch {
		case !listed && err == nil && !missed:
			all, err := byParent()
			return all[pid], err
		case !missed || err != nil:
			return distinct(append(pids, found...)), err
		}
		pids = append(pids, found...)
	}
	return distinct(pids), errRestless
}

// childrenOfThreads lists the children of each thread of a process. missed says that a
// thread has ended meanwhile: its children are another's now, which may have been read
// before. listed is false if the kernel keeps no lists.
func childrenOfThreads(process string) (pids []int, listed, missed bool, err error) {
	threads, failed := threadsOf(process)
	for _, thread := range threads {
		data, err := ReadFile(filepath.Join(process, "task", thread, "children"))
		switch {
		case err == nil:
			listed = true
		case Gone(err):
			_, err := os.Lstat(filepath.Join(process, "task", thread))
			missed = missed || err != nil // or the kernel keeps no lists
		case !Leased(failed):
			failed = err
		}
		pids = append(pids, pidsIn(data)...)
	}
	return pids, listed, missed, failed
}

// orphans lists the children of this process's first thread. The kernel gives a process that
// loses its parent to the first thread of the subreaper (find_new_reaper in kernel/exit.c),
// which lives as long as a Go program.
func orphans() ([]int, error) {
	data, err := ReadFile(fmt.Sprintf("/proc/self/task/%d/children", os.Getpid()))
	if errors.Is(err, fs.ErrNotExist) { // the kernel keeps no lists
		return Children(os.Getpid())
	}
	return pidsIn(data), err
}

func pidsIn(list []byte) (pids []int) {
	for field := range bytes.FieldsSeq(list) {
		if pid, err := strconv.Atoi(string(field)); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

func distinct(pids []int) []int {
	seen := map[int]bool{}
	return slices.DeleteFunc(pids, func(pid int) bool {
		again := seen[pid]
		seen[pid] = true
		return again
	})
}

// byParent lists the machine's processes by their parents. With an error there
// may be more.
func byParent() (map[int][]int, error) {
	pids, failed := All()
	children := map[int][]int{}
	for _, pid := range pids {
		s, err := ReadStat(pid)
		switch {
		case err == nil:
			children[s.Parent] = append(children[s.Parent], pid)
		case !Gone(err) && !Leased(failed):
			failed = err
		}
	}
	return children, failed
}

// Descendants lists the processes that descend from the given ones, these
// excluded, zombies included. With an error there may be more; [Leased] tells if one of
// several was a lease.
func Descendants(of ...int) ([]int, error) {
	children, failed := Children, error(nil)
	if !ListsChildren() {
		all, err := byParent()
		children, failed = func(pid int) ([]int, error) { return all[pid], nil }, err
	}
	seen := map[int]bool{}
	for _, pid := range of {
		seen[pid] = true
	}
	var found []int
	for todo := slices.Clone(of); len(todo) > 0; todo = todo[1:] {
		pids, err := children(todo[0])
		if err != nil && !Gone(err) && !Leased(failed) {
			failed = err
		}
		for _, pid := range pids {
			if !seen[pid] {
				seen[pid] = true
				found, todo = append(found, pid), append(todo, pid)
			}
		}
	}
	return found, failed
}
