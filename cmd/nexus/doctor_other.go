//go:build !linux

package main

import "runtime"

// kernel says that nothing confines programs here.
func (d *doctor) kernel() {
	d.add("kernel", isWarn, "use Linux for agents that you do not trust", "%s: nothing confines programs", runtime.GOOS)
}

// clockKept knows nothing here.
func clockKept() (kept, known bool) { return false, false }
