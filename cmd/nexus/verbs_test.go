package main_test

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
)

// What nexus alone has is not mistaken for another verb of nexus-rpc: top was taken for stop.
func TestVerbsOfNexusAlone(t *testing.T) {
	verbs := func(program string) map[string]bool {
		out, err := exec.Command(filepath.Join(programs, program), "--help").Output()
		if err != nil {
			t.Fatal(err)
		}
		all := map[string]bool{}
		for _, match := range regexp.MustCompile(`(?m)^  ([a-z]+) {2,}\S`).FindAllSubmatch(out, -1) {
			all[string(match[1])] = true
		}
		return all
	}
	common, alone := verbs("nexus-rpc"), 0
	for verb := range verbs("nexus") {
		if common[verb] {
			continue
		}
		alone++
		out, err := exec.Command(filepath.Join(programs, "nexus-rpc"), verb).CombinedOutput()
		want := `nexus-rpc: unknown verb "` + verb + `": it is one of nexus (nexus ` + verb + ")\n"
		if err == nil || string(out) != want {
			t.Errorf("%v, %q, want %q", err, out, want)
		}
	}
	if alone < 5 {
		t.Errorf("nexus has only %d verbs of its own", alone)
	}
}
