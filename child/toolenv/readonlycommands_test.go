package toolenv

import (
	"os"
	"path/filepath"
	"testing"

	"nexus.internal/child/permission"
	"nexus.internal/child/tool"
	"nexus.internal/child/tool/shell"
	"nexus.internal/protocol"
)

// What runs unasked because it only looks: nothing that could run another
// program, or change something, by its arguments.
func TestLooking(t *testing.T) {
	if !confines() {
		t.Log("without confinement nothing runs unasked")
	}
	t.Setenv("PATH", "/usr/local/bin:/usr/bin:/bin")
	trusted := permission.Policy{Cwd: "/work", Permissions: protocol.Permissions{Preset: "trusted"}}
	for _, tt := range []struct {
		command string
		want    bool
	}{
		{"cat a | grep -rn b . | wc -l", true},
		{"ls *.go && head -n 3 $f; for f in a b; do cat $f; done", true},
		{`find . -type f \( -name '*.go' -o -name "*.md" \)`, true},
		{"sort -rn -k2,2 -t, a | uniq -c", true},
		{"rg -n --glob '*.go' main", true},
		{"file a; tree -L 2; xxd -l16 a; date +%F; date -u", true},
		{"[ -f a ] && test -d b; printf '%s\\n' $f", true},

		{"find . -exec chmod 0 {} +", false},
		{"find . -execdir x ';'", false},
		{"find . -ok x ';'", false},
		{"find . -okdir x ';'", false},
		{"find . -delete", false},
		{"find . -fprint a", false},
		{"find . -fprintf a x", false},
		{"find . -fls a", false},
		{"find . -'exec' x", false},
		{`find . -\exec x`, false},
		{"find . $'-exec' x", false},
		{`find . "-ex"ec x`, false},
		{"find . $x", false},
		{"find *", false}, // there may be a file named -delete
		{"find . {-delete,}", false},
		{"ls | (cat; find . -delete)", false},
		{"echo $(find . -delete)", false},
		{"sort -o a b", false},
		{"sort -uo a b", false},
		{"sort --outp=a b", false},
		{"sort --compress-program=x a", false},
		{"sort --comp x a", false},
		{"rg --pre x a", false},
		{"rg --pre=x a", false},
		{"rg --hostname-bin=x a", false},
		{"rg -nz a", false},
		{"RIPGREP_CONFIG_PATH=a rg b", false},
		{"file -C -m a", false},
		{"file --comp", false},
		{"tree -o a", false},
		{"tree -HR a", false},
		{"date -s now", false},
		{"date --set=now", false},
		{"date 01010000", false},
		{"uniq a b", false},
		{"uniq -c - b", false},
		{"uniq -- -a -b", false},
		{"xxd a b", false},
		{"test -v 'a[$(x)]'", false},
		{"[ -v 'a[$(x)]' ]", false},
		{"[ $x 'a[$(x)]' ]", false},
		{"printf -v 'a[$(x)]' b", false},
		{"printf $x", false},
		{"for PATH in .; do ls; done", false},
		{"x=1; ls", false},
		{"awk 1 a", false},
		{"sed -n 1p a", false},
		{"ls | xargs cat", false},
		{"env", false},
		{"ls | tee a", false},
		{"git log", true},
		{"git status -sb && git diff --stat HEAD~1 -- a b | head -20", true},
		{"git --no-pager log --oneline -n 5 --format='%h %s' --since '2 weeks ago' -- a; git show HEAD:a", true},
		{"git -C sub diff -U10 --cached", true},
		{"git log -p -3 --author=x -S text", true},
		{"git", false},
		{"git commit", false},
		{"git -c core.pager=x log", false},
		{"git -ccore.pager=x log", false},
		{"git --exec-path=. log", false},
		{"git --git-dir=x log", false},
		{"git --work-tree=x status", false},
		{"git --config-env=core.pager=X log", false},
		{"git -p log", false},
		{"git --paginate log", false},
		{"git -C $x log", false},
		{"git -C", false},
		{"git x log", false},
		{"git diff --ext-diff", false},
		{"git diff --ext", false},
		{"git diff --textconv", false},
		{"git diff --output=a", false},
		{"git diff --output a", false},
		{"git diff --outp=a", false},
		{"git diff -- --output=a", false},
		{"git log --since -- --output=a", false},
		{"git diff --submodule=diff", false},
		{"git diff --no-index a b", false},
		{"git diff -Oa", false},
		{"git diff $x", false},
		{"git diff -- *", false},
		{"git log --show-signature", false},
		{"git log --format='%G?'", false},
		{"git log --format='%+G?'", false},
		{"git log --remerge-diff", false},
		{"git log --diff-merges=remerge", false},
		{"git log --ext-diff -p", false},
		{"git show --textconv HEAD", false},
		{"git status -v", false},
		{"git status -sv", false},
		{"git status --verbose", false},
		{"git status --ignore-submodules=none", false},
		{"git log > a", false},
		{"GIT_EXTERNAL_DIFF=x git diff", false},
		{"./git log", false},
		{"echo `git log`", false},
		{"echo $(git log)", true},
		{"less a", false},
		{"more a", false},
		{"man ls", false},
		{"hostname a", false},
		{"fd -x rm", false},
		{"ls > a", false},
		{"./ls", false},
		{"cat f & ls", false},
		{"ls && cat f &", false},
		{"(sleep 9 &)", false},
		{"for f in a b; do cat $f & done", false},
		{"echo $(cat f & ls)", false},
	} {
		s := tool.Scope{Command: tt.command, Programs: shell.Describe(tt.command)}
		if got := isReadOnly(s, trusted); got != (tt.want && confines()) {
			t.Errorf("%s: %t", tt.command, got)
		}
	}
}

// Nothing runs unasked, and nothing is allowed for a session, if the agent may
// write where the shell finds the program.
func TestReachesPrograms(t *testing.T) {
	top := t.TempDir()
	work, bin, other := filepath.Join(top, "work"), filepath.Join(top, "bin"), filepath.Join(top, "other")
	for _, dir := range []string{filepath.Join(work, "bin"), bin, other} {
		if err := os.MkdirAll(dir, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	for from, to := range map[string]string{
		filepath.Join(bin, "jq"): filepath.Join(work, "jq"), filepath.Join(top, "link"): filepath.Join(work, "bin"), filepath.Join(work, "link"): bin,
	} {
		if err := os.Symlink(to, from); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(work, "jq"), nil, 0o777); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, path, command string
		allowance           protocol.Allowance
		want                bool
	}{
		{"elsewhere", bin, "ls", protocol.Allowance{}, true},
		{"in the working directory", bin + ":" + work + "/bin", "ls", protocol.Allowance{}, false},
		{"in it by a link", top + "/link", "ls", protocol.Allowance{}, false},
		{"by a link in it", work + "/link", "ls", protocol.Allowance{}, false},
		{"the program is a link", bin, "ls && jq . a", protocol.Allowance{}, false},
		{"another tool may write there", bin, "ls", protocol.Allowance{Tool: "write_file", Action: protocol.ActionWrite, Dir: bin}, false},
		{"another tool may write one program", bin, "ls", protocol.Allowance{Tool: "write_file", Action: protocol.ActionWrite, Dir: bin + "/ls"}, false},
		{"another tool may read there", bin, "ls", protocol.Allowance{Tool: "read_file", Action: protocol.ActionRead, Dir: bin}, true},
		{"not one of PATH", "bin:" + bin, "ls", protocol.Allowance{}, true},
	} {
		t.Setenv("PATH", tt.path)
		s := tool.Scope{Command: tt.command, Programs: shell.Describe(tt.command)}
		p := permission.Policy{Cwd: realPath(work), Permissions: protocol.Permissions{Preset: "trusted"}}
		if tt.allowance.Dir != "" {
			tt.allowance.Dir = realPath(tt.allowance.Dir)
			p.Allowances = []protocol.Allowance{tt.allowance}
		}
		if looks, may := isReadOnly(s, p), isPlain(s, p); looks != (tt.want && confines()) || may != tt.want {
			t.Errorf("%s: looking %t, plain %t, want %t", tt.name, looks, may, tt.want)
		}
	}
	t.Setenv("PATH", "")
	if p := (permission.Policy{Cwd: "/usr/bin"}); !reachesPrograms(p, nil) {
		t.Error("without a PATH there is that of the sandbox")
	}
}
