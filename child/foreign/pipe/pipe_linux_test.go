package pipe_test

import (
	"strings"
	"testing"

	"nexus.internal/child/foreign/foreigntest"
	"nexus.internal/child/foreign/pipe"
	"nexus.internal/protocol"
)

func TestMain(m *testing.M) { foreigntest.Main(m) }

// What a program writes is the answer, so one that wrote nothing has not answered: the error says how it ended,
// and what it said on stderr. It counted as a model that ended its turn without a word.
func TestNoOutput(t *testing.T) {
	for script, want := range map[string]string{
		"cat >/dev/null":                       "exit status 0 and wrote nothing to stdout",
		"cat >/dev/null; echo no paper >&2":    "exit status 0 and wrote nothing to stdout: no paper",
		"cat >/dev/null; exit 3":               "exit status 3 and wrote nothing to stdout",
		"cat >/dev/null; echo half; exit 3":    "exit status 3",
		"cat >/dev/null; kill -9 $$":           "killed by signal 9",
		"cat >/dev/null; echo; echo noise >&2": "",
		"cat":                                  "",
	} {
		a := foreigntest.Open(t, foreigntest.Options{Driver: pipe.Driver{}, Command: []string{"/bin/sh", "-c", script}})
		result, said := a.Turn(t.Context(), "1", "hello")
		switch {
		case want == "" && (result.Err != nil || result.Stop != protocol.StopCompleted || said.Text() == ""):
			t.Errorf("%s: %+v, %q", script, result, said.Text())
		case want != "" && (result.Err == nil || !strings.Contains(result.Err.Error(), want)):
			t.Errorf("%s: %v, want %s", script, result.Err, want)
		case want == "exit status 3" && strings.Contains(result.Err.Error(), "nothing"):
			t.Errorf("%s: %v", script, result.Err)
		}
	}
}
