package main

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// kernel looks at what confines programs. Whether it does in fact, confinement finds out.
func (d *doctor) kernel() {
	var name unix.Utsname
	release := "Linux"
	if unix.Uname(&name) == nil {
		release += " " + unix.ByteSliceToString(name.Release[:])
	}
	abi, _, failed := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	there := []string{}
	if failed == 0 {
		there = append(there, fmt.Sprintf("Landlock %d", abi))
	} else {
		d.add("kernel", isWarn, "use Linux 5.13 or newer with Landlock (CONFIG_SECURITY_LANDLOCK, and landlock in lsm= of its command line)", "%s: no Landlock (%v)", release, failed)
	}
	if _, err := os.Stat("/proc/sys/kernel/seccomp/actions_avail"); err == nil {
		there = append(there, "seccomp")
	} else {
		d.add("kernel", isWarn, "use a kernel with CONFIG_SECCOMP_FILTER", "%s: no seccomp", release)
	}
	if why := noUserNamespaces(); why == "" {
		there = append(there, "user namespaces")
	} else {
		d.add("kernel", isWarn, "sysctl "+why+", without which programs with network, and those of keys, run not", "%s: no user namespaces", release)
	}
	if len(there) == 3 {
		d.add("kernel", isOK, "", "%s: %s", release, strings.Join(there, ", "))
	}
}

// noUserNamespaces is the setting that would let our user have user namespaces; "" if nothing is in the way.
func noUserNamespaces() string {
	is := func(path string, value int) bool {
		_, err := os.Stat(path)
		return err == nil && numberIn(path) == value
	}
	switch {
	case is("/proc/sys/user/max_user_namespaces", 0):
		return "user.max_user_namespaces=10000"
	case os.Geteuid() != 0 && is("/proc/sys/kernel/unprivileged_userns_clone", 0):
		return "kernel.unprivileged_userns_clone=1"
	case os.Geteuid() != 0 && is("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", 1):
		return "kernel.apparmor_restrict_unprivileged_userns=0"
	}
	return ""
}

// clockKept reports whether somebody keeps the clock right, as far as the kernel knows.
func clockKept() (kept, known bool) {
	var t unix.Timex
	if _, err := unix.Adjtimex(&t); err != nil {
		return false, false
	}
	return t.Status&unix.STA_UNSYNC == 0, true
}
