package workplace

import (
	"testing"

	"nexus.internal/child/tool"
	"nexus.internal/child/tool/shell"
)

// What runs unasked because it only looks: nothing that could run another
// program, or change something, by its arguments.
func TestLooking(t *testing.T) {
	if !confines() {
		t.Log("without confinement nothing runs unasked")
	}
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
		{"git log", false},
		{"less a", false},
		{"more a", false},
		{"man ls", false},
		{"hostname a", false},
		{"fd -x rm", false},
		{"ls > a", false},
		{"./ls", false},
	} {
		s := tool.Scope{Command: tt.command, Programs: shell.Describe(tt.command)}
		if got := looking(s); got != (tt.want && confines()) {
			t.Errorf("%s: %t", tt.command, got)
		}
	}
}
