package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// dpkg and rpm have to take later versions for newer ones.
func TestPackageVersion(t *testing.T) {
	rising := []struct{ described, want string }{
		{"0123abc", "0~20261124.0123abc"},
		{"v1.2.3-rc.1", "1.2.3~rc.1"},
		{"v1.2.3", "1.2.3"},
		{"v1.2.3-dirty", "1.2.3+dirty"},
		{"v1.2.4", "1.2.4"},
		{"v1.2.4-7-g0123abc", "1.2.4+7.g0123abc"},
		{"1.2.4-12-g0123abc-dirty", "1.2.4+12.g0123abc+dirty"},
	}
	for i, test := range rising {
		if got := packageVersion(test.described, "20261124"); got != test.want {
			t.Errorf("%s is %s, want %s", test.described, got, test.want)
		}
		if _, err := exec.LookPath("dpkg"); err == nil && i > 0 {
			if err := exec.CommandContext(t.Context(), "dpkg", "--compare-versions", rising[i-1].want, "lt", test.want).Run(); err != nil {
				t.Errorf("%s is not newer than %s: %v", test.want, rising[i-1].want, err)
			}
		}
	}
}

// inOverlay runs the script $2 in a root that is as that of this machine, and whose changes
// nobody else sees; $1 is a directory to lay it in. Processes end with the script.
const inOverlay = `mount -t tmpfs tmpfs "$1"; mkdir "$1/up" "$1/work" "$1/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$1/up,workdir=$1/work" "$1/root"
mount -t proc proc "$1/root/proc"; mount --rbind /dev "$1/root/dev"; cp "$3" "$1/root/nexus.package"
exec chroot "$1/root" /bin/sh -euc "$2"`

// overlay is a command for a script in such a root, with a package in it; nil where that cannot be.
func overlay(t *testing.T, script, file string) *exec.Cmd {
	t.Helper()
	command := func(script, file string) *exec.Cmd {
		return exec.CommandContext(t.Context(), "unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-euc", inOverlay, "sh", t.TempDir(), script, file)
	}
	if os.Geteuid() != 0 { // useradd reads what root alone may
		return nil
	}
	if said, err := command("true", os.DevNull).CombinedOutput(); err != nil {
		t.Logf("no root of its own for the package: %v\n%s", err, said)
		return nil
	}
	return command(script, file)
}

// lifeOfPackage is what becomes of a package on a machine: it is installed, does its work for a
// person and for the service's user, is installed again, and removed.
const lifeOfPackage = `
install_it; nexus version --json
export NEXUS_HOME=/tmp/home NEXUS3_API_KEY=; cd /tmp
( ` + talk + `)
getent passwd nexus; grep -q '^ExecStart=/usr/bin/nexus serve$' /usr/lib/systemd/system/nexus.service
[ "$(stat -c '%a %U' /etc/nexus)" = '700 root' ]
install -d -o nexus -g nexus -m 700 /var/lib/nexus /var/lib/nexus/work; cd /var/lib/nexus/work
runuser -u nexus -- env NEXUS_HOME=/var/lib/nexus/home HOME=/var/lib/nexus sh -euc "$TALK"
install_again
remove_it
! command -v nexus; [ ! -e /usr/share/doc/nexus/README.md ]; [ ! -e /usr/lib/systemd/system/nexus.service ]
getent passwd nexus; ls -d /var/lib/nexus/home; echo removed
`

func TestPackages(t *testing.T) {
	for _, test := range []struct {
		kind, file, needs, list string
		steps, unpack           string
	}{
		{
			"deb", "nexus_*_" + runtime.GOARCH + ".deb", "dpkg-deb", `dpkg-deb --fsys-tarfile "$1" | tar t`,
			// Triggers are the work of other packages, such as an index of all man pages.
			"install_it() { dpkg --no-triggers -i /nexus.package; }; install_again() { dpkg --no-triggers -i /nexus.package; }; remove_it() { dpkg --no-triggers -r nexus; }",
			`dpkg-deb -x "$1" "$2"`,
		},
		{
			"rpm", "nexus-*." + map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH] + ".rpm", "rpm", `rpm -qlp "$1"`,
			// Debian's rpm installs nothing unless it is told so.
			`force=; if [ -e /etc/debian_version ]; then force=--force-debian; fi
install_it() { rpm $force -i /nexus.package; }; install_again() { rpm $force -U --replacepkgs /nexus.package; }; remove_it() { rpm $force -e nexus; }`,
			`cd "$2"; rpm2cpio "$1" | cpio -id --quiet`,
		},
	} {
		t.Run(test.kind, func(t *testing.T) {
			if _, err := exec.LookPath(test.needs); err != nil {
				t.Logf("not run, as there is no %s here", test.needs)
				return
			}
			file := named(t, test.file)
			listed := output(t, exec.CommandContext(t.Context(), "sh", "-euc", test.list, "sh", file))
			for _, name := range []string{
				"/usr/bin/nexus-child\n", "/usr/share/man/man1/nexus.1.gz\n", "/usr/share/doc/nexus/copyright\n", "/usr/lib/systemd/user/nexus.service\n",
				"/usr/share/zsh/site-functions/_nexus-rpc\n", "/etc/nexus",
			} {
				if !strings.Contains(listed, name) {
					t.Errorf("%q is not in it:\n%s", name, listed)
				}
			}
			dir := t.TempDir()
			output(t, exec.CommandContext(t.Context(), "sh", "-euc", test.unpack, "sh", file, dir))
			converse(t, filepath.Join(dir, "usr/bin"))
			life := overlay(t, test.steps+lifeOfPackage, file)
			if life == nil {
				t.Log("not run: its installation, for which there is no root of its own")
				return
			}
			life.Env = append(os.Environ(), "TALK="+talk, freePort(t))
			said := output(t, life)
			if strings.Count(said, "Your name is Alice.") != 2 || !strings.HasSuffix(said, "removed\n") {
				t.Errorf("it said:\n%s", said)
			}
		})
	}
}
