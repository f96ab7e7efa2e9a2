package toolenv

import (
	"strings"
	"testing"

	"nexus.internal/child/permission"
	"nexus.internal/child/tool"
	"nexus.internal/child/tool/shell"
	"nexus.internal/protocol"
)

// What can be allowed for a session: programs that change files here and run
// nothing else, whatever the files of the project say.
func TestPlain(t *testing.T) {
	t.Setenv("PATH", "/usr/local/bin:/usr/bin:/bin")
	trusted := permission.Policy{Cwd: "/work", Permissions: protocol.Permissions{Preset: "trusted"}}
	is := func(command string, p permission.Policy) bool {
		return isPlain(tool.Scope{Command: command, Programs: shell.Describe(command)}, p)
	}
	for _, command := range []string{
		"mkdir -p a/b && touch a/b/c", "cp -r a b", "cp -a -- a b; mv -f a b", "rm -rf build", "rmdir a || true", "chmod +x run.sh", "chmod -R 755 bin",
		"cat a b > c 2>&1", "echo text >> a && cat a | grep text | sort -u", "cd sub && ls -la && rm x", "! test -f a && touch a",
		"cp 'a file' \"b file\" # a remark", "ls > /dev/null", "cat < a",
	} {
		if !is(command, trusted) {
			t.Errorf("%s: it is plain", command)
		}
		for _, p := range []permission.Policy{
			{Cwd: "/usr", Permissions: trusted.Permissions},
			{Cwd: "/work", Permissions: protocol.Permissions{Preset: "trusted", AllowedPaths: []string{"/usr/local/bin"}}},
		} {
			if is(command, p) {
				t.Errorf("%s: the agent could change a program of %v", command, p.AccessiblePaths("shell"))
			}
		}
	}
	for _, command := range []string{
		// Launchers, as programs and by their arguments.
		"git -c alias.x='!sh' x", "git status", "git --exec-path=. status", "/usr/bin/git log", "git diff --ext-diff",
		"/lib64/ld-linux-x86-64.so.2 ./a", "ld.so ./a", "ld-linux.so.2 /bin/sh", "setpriv --reuid 0 sh", "capsh -- -c x", "env sh", "env -S 'sh -c x'",
		"xargs sh", "parallel x", "nohup x", "nice x", "ionice x", "timeout 1 x", "time x", "setsid x", "stdbuf -o0 x", "script -c x", "watch x", "flock a x",
		"chroot . x", "unshare x", "nsenter x", "chrt 1 x", "taskset 1 x", "setarch x", "linux64 x", "prlimit x", "strace x", "ltrace x", "gdb x", "valgrind x",
		"systemd-run x", "start-stop-daemon -S -x y", "bwrap x", "fakeroot x", "proot x", "firejail x", "sudo x", "doas x", "su -c x", "runuser x", "pkexec x",
		"ssh h x", "scp a h:", "rsync -e x a b", "docker run x", "podman x", "kubectl exec x", "tmux new x", "screen x", "at now", "batch", "crontab a",
		"socat - EXEC:x", "nc -e sh h 1", "busybox sh", "toybox x", "dbus-launch x", "dbus-run-session x", "xvfb-run x", "catchsegv x", "newgrp x", "sg x y",
		"sh a", "bash -c x", "dash a", "./run", "a/b", "/bin/cp a b", ". a", "source a", "eval x", "exec x", "command x", "builtin x", "trap x EXIT", "coproc x",
		"enable -f ./a.so x", "hash -p ./a cp", "alias cp=x", "complete -C x", "bind -x x", "mapfile -C x a", "read -p x a", "set -x", "export PATH=.", "declare x=1", "let x",
		"python a", "python3.12 -m x", "perl -e x", "ruby a", "node a", "php a", "lua a", "awk 1 a", "gawk 'BEGIN{system(\"x\")}'", "sed e a", "ed a", "vi a",
		"less a", "more a", "man a", "emacs a", "view a", "pager a", "tar --to-command=x -xf a", "tar -I x -cf a b", "tar xf a", "zip -T -TT x a b", "unzip a",
		"find . -exec x ';'", "find . -delete", "fd -x y", "rg --pre x a", "sort --compress-program=x a", "sort -o b a", "split --filter=x a", "tee a", "install -D a b",
		// Whatever heeds files of the project.
		"make", "make -f a", "cmake .", "ninja", "just", "task", "gradle x", "mvn x", "ant", "npm test", "npm install", "npx x", "pnpm x", "yarn", "bunx x",
		"pip install a", "pipx x", "uv run x", "poetry x", "pytest", "tox", "go test ./...", "go build -toolexec x", "go run .", "go generate", "gofmt -w a",
		"cargo test", "rustc a", "gem x", "bundle exec x", "composer x", "apt install x", "apt-get -o x y", "dpkg -i a", "rpm -i a", "dnf x", "brew x", "cc a.c", "gcc -B. a.c",
		"ldconfig", "iconv a", "localedef a", "openssl x", "curl x", "wget x", "gpg x", "editor a", "xdg-open a", "mail x", "mount a", "dd if=a of=b", "kill 1",
		// Variables that programs heed, and what the shell itself does.
		"GCONV_PATH=. cp a b", "LD_PRELOAD=./a.so ls", "PATH=.:$PATH ls", "X=1 cp a b", "BASH_ENV=a ls", "GIT_DIR=. ls", "IFS=x; ls", "PATH=. ; ls",
		"cp $(x) b", "cp `x` b", "cat <(x)", "cp $a b", "cp ${a@P} b", "cp a* b", "cp {a,b} c", "cp ~/a b", "cp $'a' b", "cat <<E\n$(x)\nE", "cat <<< x",
		"f() { x; }; f", "cp() { x; }; cp a b", "(cp a b)", "{ cp a b; }", "for f in a; do rm $f; done", "while ls; do rm a; done", "if ls; then rm a; fi",
		"case a in a) rm a;; esac", "[[ -v a[$(x)] ]]", "(( a ))", "echo $((a))", "test -v 'a[$(x)]'", "printf -v 'a[$(x)]' b", "time ls", "cp a b |& x", "cp a b &", "cp a b & rm c", "ls && cp a b &", "cat < a &", "cp a b &!", "select a in b; do x; done",
		// What lies elsewhere.
		"cat /etc/passwd", "cat ../secret", "cp a ../b", "cp -t /tmp a", "cp --target-directory=/tmp a", "cp a/../../b c", "rm -rf /", "rm -rf ..", "cd /; rm a", "cd; rm a", "cd -", "cd ..",
		"grep -f/etc/passwd a", "cat a > /etc/x", "cat a > ../x", "cat a > /dev/tcp/h/80", "cat < /dev/udp/h/1", "cat a > $x", "cat a >& x", "exec 3<>/dev/tcp/h/1",
		"cp -s /etc/passwd a", "cp -s a b", "cp -l a b", "ln -s / a", "cp --symbolic-link a b", "touch -r /etc/passwd a", "chmod 4755 a", "chmod u+s a", "chmod --reference=/a b", "chown x a",
		"", "ls; ?", "ls '", "\\", "$x", "$(x)", "a=b",
	} {
		if is(command, trusted) {
			t.Errorf("%s: it is not plain", strings.ReplaceAll(command, "\n", `\n`))
		}
	}
}
