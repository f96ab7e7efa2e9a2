package toolenv_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"nexus.internal/child/parent"
	"nexus.internal/child/toolenv"
	"nexus.internal/protocol"
)

// hostile makes a repository that names a program wherever git takes one; the program says so.
const hostile = `set -e
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1 GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b
cat > evil <<'E'
#!/bin/sh
echo "RAN $1" >&2
echo x > pwned
echo x > OUTSIDE/pwned
(exec 3<>/dev/tcp/127.0.0.1/1) 2>/dev/null
[ "$1" = filter ] && cat
exit 0
E
chmod +x evil
make() {
	git init -q -b main .
	echo one > a.txt; echo one > b.dat; echo gone > gone.bin
	printf '*.txt diff=evil\n*.dat filter=evil\n' > .gitattributes
	git add -A . && git commit -qm first
	tree=$(git rev-parse HEAD^{tree}); head=$(git rev-parse HEAD)
	signed=$(printf 'tree %s\nparent %s\nauthor a <a@b> 1700000000 +0000\ncommitter a <a@b> 1700000000 +0000\ngpgsig -----BEGIN PGP SIGNATURE-----\n \n iQ\n -----END PGP SIGNATURE-----\n\nsigned\n' $tree $head | git hash-object -t commit -w --stdin)
	git reset -q $signed
	mkdir -p hooks
	for hook in post-index-change fsmonitor-watchman reference-transaction; do printf '#!/bin/sh\nexec %s hook\n' "$evil" > hooks/$hook; chmod +x hooks/$hook; done
}
evil=$PWD/evil
make
mkdir sub && (cd sub && make && git config core.fsmonitor "$evil submodule")
git add sub 2>/dev/null; git commit -qm sub
settings() { git config "$1" "$evil $2"; }
settings core.fsmonitor fsmonitor; settings core.pager pager; settings pager.log pager; settings pager.status pager; settings alias.status "!x"
settings diff.external external; settings diff.evil.command driver; settings diff.evil.textconv textconv; settings filter.evil.clean filter
printf '#!/bin/sh\nexec %s gpg\n' "$evil" > evilgpg; chmod +x evilgpg; git config gpg.program "$evil"gpg; git config gpg.openpgp.program "$evil"gpg
settings core.sshCommand ssh; settings core.askPass askpass
settings diff.submodule diff
git config log.showSignature true; git config diff.submodule diff; git config core.hooksPath hooks; git config log.diffMerges remerge
git config remote.origin.url "ext::$evil remote"; git config protocol.ext.allow always; git config remote.origin.promisor true; git config extensions.partialClone origin
git config core.repositoryFormatVersion 1; git config status.submoduleSummary true
rm .git/objects/$(git rev-parse HEAD:gone.bin | sed 's|^..|&/|') 2>/dev/null || true
sleep 0.01; echo two >> a.txt; echo two >> b.dat; echo two > sub/a.txt; echo two > new
rm -f pwned OUTSIDE/pwned sub/pwned
`

// A hostile repository has nothing run by the commands of git that run unasked, but for the
// filters of its files, and these can neither write nor reach a network.
func TestHostileRepository(t *testing.T) {
	ran := func(preset string, commands ...string) (names []string, output string) {
		s := newSite(t, protocol.Permissions{Preset: "yolo"}, func(o *toolenv.Options) { o.Parent = parent.New(parent.Options{Approvals: parent.Deny}) })
		if got := run(t.Context(), s.Env, call("shell", "command", strings.ReplaceAll(hostile, "OUTSIDE", s.outside))); !strings.HasSuffix(got, "[exit status 0]") {
			t.Fatalf("the repository: %s", got)
		}
		if err := s.SetPermissions(protocol.Permissions{Preset: preset}, protocol.WithinCeiling); err != nil {
			t.Fatal(err)
		}
		for _, command := range commands {
			got := run(t.Context(), s.Env, call("shell", "command", command))
			if strings.Contains(got, "needs an approval") {
				t.Errorf("%s: %s", command, got)
			}
			output += got
			for _, found := range regexp.MustCompile(`RAN ([a-z-]+)`).FindAllStringSubmatch(got, -1) {
				if !slices.Contains(names, found[1]) {
					names = append(names, found[1])
				}
			}
		}
		slices.Sort(names)
		if preset == "trusted" {
			for _, name := range []string{s.dir + "/pwned", s.outside + "/pwned", s.dir + "/sub/pwned"} {
				if _, err := os.Lstat(name); err == nil {
					t.Errorf("%s was written", filepath.Base(name))
				}
			}
		}
		return names, output
	}
	commands := []string{
		"git status", "git status --porcelain=v2 --branch", "git diff", "git diff HEAD", "git diff HEAD~1 -- a.txt", "git log", "git log -p -m", "git log --stat -S two",
		"git show", "git show HEAD~1", "git show HEAD:a.txt", "git show HEAD:gone.bin", "cd sub && git status", "git -C sub diff",
	}
	// Without care all of it runs: so the repository is as hostile as it should be.
	if all, output := ran("yolo", commands...); strings.Join(all, " ") != "driver external filter fsmonitor gpg hook remote submodule textconv" {
		t.Errorf("under yolo ran %q\n%.3000s", all, output)
	}
	some, output := ran("trusted", commands...)
	if len(some) > 1 || len(some) == 1 && some[0] != "filter" {
		t.Errorf("ran %q\n%.3000s", some, output)
	}
	for _, want := range []string{"modified:   a.txt", "+two", "signed", "? new"} {
		if !strings.Contains(output, want) {
			t.Errorf("no %q in\n%.4000s", want, output)
		}
	}
}
