package proctree

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
)

// errRestless is the error of a process of which each thread had ended when it was
// looked at, while another took its place.
var errRestless = errors.New("its threads come and go too fast to be read")

// Restless reports whether an error says that a process could not be read because its
// threads come and go.
func Restless(err error) bool { return errors.Is(err, errRestless) }

// maxPasses bounds how often the threads of a process are read that come and go.
const maxPasses = 100

// Memory is the memory of a process that no file backs, with its page tables, in
// bytes. [Gone] tells whether an error means that there is no such process.
func Memory(pid int) (int64, error) {
	dir := filepath.Join("/proc", strconv.Itoa(pid))
	n, told, err := readMemory(dir)
	if told || err != nil {
		return n, err
	}
	// The first thread has ended. Others may go on with the memory of the process.
	var ending []string // threads that were there but had no memory any more
	for range maxPasses {
		threads, err := threadsOf(dir)
		if err != nil {
			return 0, err
		}
		missed := false
		for _, thread := range slices.Backward(threads) { // the youngest is there for longest
			n, told, err := readMemory(filepath.Join(dir, "task", thread))
			switch {
			case Gone(err):
				missed = true
			case told || err != nil:
				return n, err
			}
		}
		switch {
		case missed: // one may have started another before it ended, which was not listed
			ending = nil
		case slices.Equal(threads, ending): // those that end start no other
			return 0, nil
		default:
			ending = threads
		}
	}
	return 0, errRestless
}

// readMemory reads the memory of a process as a thread tells it. A thread that ends
// tells nothing, unless it is the only one.
func readMemory(thread string) (n int64, told bool, err error) {
	data, err := ReadFile(filepath.Join(thread, "status"))
	if err != nil {
		return 0, false, err
	}
	n, told = parseMemory(data)
	return n, told, nil
}

func threadsOf(process string) ([]string, error) {
	dir, err := os.Open(filepath.Join(process, "task"))
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	return dir.Readdirnames(-1)
}

// parseMemory sums up the memory in a status file. told is false if the process has
// other threads, of which one may tell more.
func parseMemory(status []byte) (sum int64, told bool) {
	for line := range bytes.Lines(status) {
		name, value, _ := bytes.Cut(line, []byte{':'})
		value = bytes.TrimSpace(value)
		switch string(name) {
		case "VmSize":
			told = true
		case "Threads":
			told = told || string(value) == "1" || string(value) == "0"
		case "RssAnon", "RssShmem", "VmSwap", "VmPTE", "HugetlbPages":
			n, err := strconv.ParseInt(string(bytes.TrimSuffix(value, []byte(" kB"))), 10, 64)
			if err == nil && n > 0 {
				sum += min(n, 1<<50) * 1024
			}
		}
	}
	return sum, told
}

// MaxOOMScore is the score of those that the kernel ends first.
const MaxOOMScore = 1000

// RaiseOOMScore raises the score by which the kernel chooses the process that it ends
// where the machine has no memory left (oom_score_adj). The difference to MaxOOMScore is
// divided by the divisor: 1 raises it to MaxOOMScore, 2 halfway. What the process starts
// inherits its score. The score of a process of another user, or of one that hides itself
// (SetUndumpable), cannot be raised.
func RaiseOOMScore(pid, divisor int) error {
	file, err := Open(fmt.Sprintf("/proc/%d/oom_score_adj", pid), os.O_RDWR)
	if err != nil {
		return err
	}
	defer file.Close()
	data, err := io.ReadAll(file)
	if err != nil {
		return err
	}
	now, err := strconv.Atoi(string(bytes.TrimSpace(data)))
	if err != nil {
		return fmt.Errorf("%s: %w", file.Name(), err)
	}
	_, err = file.WriteAt([]byte(strconv.Itoa(now+(MaxOOMScore-now)/divisor)), 0)
	return err
}
