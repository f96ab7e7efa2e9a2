package toolenv

import (
	"testing"
	"time"

	"nexus.internal/child/tool"
)

// The tools of an agent say which time a call names, those that stand around another one
// too: shell did not, so that a build ended after 300 s, whatever its call named.
func TestTimesThatCallsName(t *testing.T) {
	env, err := Open(Options{Cwd: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer env.Close()
	want := map[string]string{
		"shell": `{"command":"make","timeout_s":3600}`, "job_output": `{"job":"web","wait_s":3600}`, "sleep": `{"seconds":3600}`,
	}
	for _, b := range env.builtins {
		input := want[b.name]
		delete(want, b.name)
		timed, ok := b.Tool.(tool.Timed)
		if ok != (input != "") || ok && timed.TimeLimit([]byte(input)) != time.Hour {
			t.Errorf("%s names a time: %v", b.name, ok)
		}
	}
	if len(want) > 0 {
		t.Errorf("there is none of %v", want)
	}
}
