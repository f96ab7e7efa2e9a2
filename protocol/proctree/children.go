package proctree

import (
	"bytes"
	"fmt"
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
	tasks := "/proc/" + strconv.Itoa(pid) + "/task"
	threads, failed := os.ReadDir(tasks)
	var pids []int
	listed := false
	for _, thread := range threads {
		data, err := ReadFile(filepath.Join(tasks, thread.Name(), "children"))
		switch {
		case err == nil:
			listed = true
		case !Gone(err) && !Leased(failed): // gone is the thread, or the kernel keeps no lists
			failed = err
		}
		for _, field := range bytes.Fields(data) {
			if child, err := strconv.Atoi(string(field)); err == nil {
				pids = append(pids, child)
			}
		}
	}
	if !listed && failed == nil {
		all, err := byParent()
		return all[pid], err
	}
	return pids, failed
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
