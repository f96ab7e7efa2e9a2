package main

import (
	"fmt"
	"os"
	"os/user"
	"strings"

	"nexus.internal/supervisor/proc"
)

func (d *doctor) limits() {
	files, watches := limitOfFiles(), numberIn("/proc/sys/fs/inotify/max_user_instances")
	const wanted, instances = 4096, 64
	if files > 0 && files < wanted {
		d.add("limits", isWarn, fmt.Sprintf("raise it to %d or more (ulimit -n, LimitNOFILE): an agent takes 9 of them", wanted), "%d files may be open", files)
	} else {
		d.add("limits", isOK, "", "%d files may be open", files)
	}
	if watches > 0 && watches < instances {
		d.add("limits", isWarn, "sysctl fs.inotify.max_user_instances=128", "%d inotify instances for a user: lists of sessions are read anew each time without one", watches)
	}
	if err := roomForThreads(spareThreads); err != nil {
		d.add("limits", isFail, "raise the number of threads (ulimit -u, LimitNPROC, pids.max)", "%v", err)
	}
}

// processes finds out by what a server guards and bounds its processes here: as the server that runs says, or by
// taking it into use for a moment.
func (d *doctor) processes() {
	means := d.guard
	if means == "" {
		dir, err := os.MkdirTemp("", "nexus-doctor-")
		if err != nil {
			d.add("processes", isWarn, "make room for temporary files (TMPDIR), and call doctor again: this was not looked at", "%v", err)
			return
		}
		defer os.RemoveAll(dir)
		guard, err := proc.NewGuard(proc.GuardOptions{Dir: dir})
		if err != nil {
			d.add("processes", isWarn, "make room for temporary files (TMPDIR), and call doctor again: this was not looked at", "%v", err)
			return
		}
		means = guard.Mechanisms().String()
		if err := guard.Close(); err != nil {
			d.add("processes", isFail, "look for processes that were left", "%v", err)
		}
	}
	names, reasons, _ := strings.Cut(strings.TrimSuffix(means, ")"), " (")
	there := strings.Fields(names)
	d.means("processes", there, reasons, []string{"pdeathsig", "tag", "subreaper", "watchdog"},
		"what agents leave is killed", "use Linux with /proc mounted, on which each of them is there: else what a killed agent leaves may live on")
	d.means("cgroups", there, reasons, []string{"cgroup.kill", "memory.max", "pids.max"},
		"the kernel bounds memory and processes of agents, and kills them whole",
		"run the server as a service of systemd with Delegate=yes and DelegateSubgroup=nexus-server, on cgroups v2: else limits are measured twice a second")
}

// means says which of the wanted means are there, and what to do if one is missing.
func (d *doctor) means(check string, there []string, reasons string, wanted []string, all, do string) {
	var missing []string
	for _, name := range wanted {
		found := false
		for _, one := range there {
			found = found || one == name
		}
		if !found {
			missing = append(missing, name)
		}
	}
	switch {
	case len(missing) == 0:
		d.add(check, isOK, "", "%s (%s)", all, strings.Join(wanted, ", "))
	case reasons != "":
		d.add(check, isWarn, do, "missing: %s (%s)", strings.Join(missing, ", "), reasons)
	default:
		d.add(check, isWarn, do, "missing: %s", strings.Join(missing, ", "))
	}
}

// userName is our user's name, or number.
func userName() string {
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return fmt.Sprint(os.Geteuid())
}

// numberIn is the number that a file of the kernel has; 0 if there is none.
func numberIn(path string) (n int) {
	if data, err := os.ReadFile(path); err == nil {
		_, _ = fmt.Sscan(string(data), &n) // 0 where it is none
	}
	return n
}
