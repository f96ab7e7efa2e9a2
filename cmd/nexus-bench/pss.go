package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"
)

// errNoPSS says that a process is gone, or that this system is not Linux.
var errNoPSS = errors.New("no proportional set size")

// pss is the proportional set size of a process in bytes.
func pss(pid int) (int64, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return 0, errors.Join(errNoPSS, err)
	}
	return parsePSS(data)
}

func parsePSS(data []byte) (int64, error) {
	for line := range bytes.Lines(data) {
		if rest, ok := bytes.CutPrefix(line, []byte("Pss:")); ok {
			kib, err := strconv.ParseInt(string(bytes.TrimSpace(bytes.TrimSuffix(bytes.TrimSpace(rest), []byte("kB")))), 10, 64)
			if err != nil {
				return 0, errors.Join(errNoPSS, err)
			}
			return kib << 10, nil
		}
	}
	return 0, errNoPSS
}

// growth is by how many bytes a process rises, at most, above what it was
// while f runs. It is looked at every 5 ms.
func growth(pid int, f func() error) (float64, error) {
	before, err := pss(pid)
	if err != nil {
		return 0, err
	}
	highest, done := before, make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		ticker := time.NewTicker(5 * time.Millisecond)
		defer ticker.Stop()
		for {
			if now, err := pss(pid); err == nil {
				highest = max(highest, now)
			}
			select {
			case <-done:
				return
			case <-ticker.C:
			}
		}
	})
	err = f()
	close(done)
	watching.Wait()
	return float64(highest - before), err
}
