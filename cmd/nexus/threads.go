package main

import (
	"runtime"
	"sync"
)

// spareThreads is how many threads are made ahead: as many system calls as that
// may block at once while the system refuses new threads.
const spareThreads = 48

// runtimeThreads is how many the runtime may want besides, for itself.
const runtimeThreads = 8

// makeThreads makes threads that the runtime keeps. One that it has to make and
// is refused ends the whole process, and a user may come to have too many
// processes (EAGAIN) by what agents run. It fails, and makes none, where it can be
// seen that there is no room for them.
func makeThreads(n int) error {
	if err := roomForThreads(n + runtimeThreads); err != nil {
		return err
	}
	var arrived, work sync.WaitGroup
	release := make(chan struct{})
	arrived.Add(n)
	for range n {
		work.Go(func() {
			runtime.LockOSThread() // so that it waits with its thread
			defer runtime.UnlockOSThread()
			arrived.Done()
			<-release
		})
	}
	arrived.Wait()
	close(release)
	work.Wait()
	return nil
}
