package shell_test

import (
	"slices"
	"strings"
	"testing"

	"nexus.internal/child/tool/shell"
)

func TestDescribe(t *testing.T) {
	for _, tt := range []struct{ command, want string }{
		{"ls -la", "ls"},
		{"cd src && go test ./... 2>&1 | tail -5; ls", "cd go tail ls"},
		{"cat a > b", "cat >"},
		{"cat a >> b", "cat >"},
		{"cat a &> b", "cat >"},
		{"cat a >& b", "cat >"},
		{"cat a >| b", "cat >"},
		{"cat <> b", "cat >"},
		{"cat a >$OUT", "cat >"},
		{"cat < a 2> /dev/null >&2", "cat"},
		{"cat <<EOF\n$(rm x)\nEOF", "cat rm"},
		{"tee >(cat) < a", "tee > cat"},
		{"echo $(rm -rf x) `touch y`", "echo rm touch"},
		{"(rm x) & { mv a b; }", "rm mv"},
		{"if true; then rm x; fi; for i in a; do touch $i; done", "true rm touch"},
		{"./ls; /bin/ls; 'l's; \"ls\"", "./ls /bin/ls ls"},
		{"$CMD x", "?"},
		{"l\\s", "?"},
		{"\"$x\"", "?"},
		{"*", "?"},
		{"[ -f x ]", "["},
		{"[[ -d y ]] && x='a[$(rm y)]'", "?"},
		{"x='a[$(rm y)]'; echo $((x))", "echo ?"},
		{"((x)); let x; for ((;;)); do echo ${a[x]} ${a:x} ${a@P}; done", "? echo"},
		{"echo ${HOME} $HOME ${x:-y} ${x%.go}", "echo"},
		{"X=1 make", "make"},
		{"X=$(rm y)", "rm"},
		{"PATH=/tmp ls", "? ls"},
		{"LD_PRELOAD=x ls", "? ls"},
		{"export PATH=/tmp; export A=b", "export ?"},
		{"ls() { rm x; }; ls", "? rm ls"},
		{"env rm x | xargs rm; eval ls", "env xargs eval"},
		{"echo 'unclosed", "?"},
		{"", ""},
	} {
		t.Run(tt.command, func(t *testing.T) {
			if got := strings.Join(shell.Describe(tt.command), " "); got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}

func FuzzDescribe(f *testing.F) {
	for _, s := range []string{"ls | wc > x", "f() { g; }; f", "a=$(b <(c)) d", "<<E\n$x\nE", "\xff", `0\`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, command string) {
		programs := shell.Describe(command)
		for i, p := range programs {
			if p == "" || slices.Contains(programs[:i], p) {
				t.Errorf("%q in %q", p, programs)
			}
		}
		// What is added can only add to what is said: the first line's end may be escaped.
		more := shell.Describe(command + "\n\nrm x")
		if !slices.Contains(more, "rm") && !slices.Contains(more, shell.Unknown) && !strings.ContainsAny(command, "<#") {
			t.Errorf("%q after %q", more, command)
		}
	})
}

// A command that nests deeply is not read: the parser has a call for each level, and a
// process whose calls are too deep ends.
func TestDeepCommands(t *testing.T) {
	for _, unit := range []string{"(", "$(", "((", "$[", "a[", "{ ", "`", "if ", "time ", "a(){ ", "[[ ! "} {
		for _, size := range []int{60 << 10, 1 << 20, 16 << 20} {
			programs := shell.Describe(strings.Repeat(unit, size/len(unit)))
			if closed := unit == "`" || unit == "time "; !slices.Equal(programs, []string{shell.Unknown}) && (size > 64<<10 || !closed) {
				t.Errorf("%d bytes of %q: %.100q", size, unit, programs)
			}
		}
	}
	if programs := shell.Describe("cat <<X\n" + strings.Repeat("f(a[i])\n", 1900) + "X\n"); !slices.Equal(programs, []string{"cat"}) {
		t.Errorf("a long text: %.100q", programs)
	}
}
