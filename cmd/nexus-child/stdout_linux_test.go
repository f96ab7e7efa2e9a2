package main

import (
	"os"
	"strings"
	"testing"
)

// A stdout that takes nothing is noticed by the first frame, and said.
func TestAFullStdout(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	for _, open := range []bool{false, true} {
		p := command(t, t.TempDir(), nil)
		p.cmd.Stdout = full
		if open {
			if _, err := p.cmd.StdinPipe(); err != nil {
				t.Fatal(err)
			}
		}
		if err := p.cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if status := p.wait(); status != 1 || !strings.Contains(p.stderr.String(), "write stdout") {
			t.Errorf("stdin open %v: exit status %d, stderr %q", open, status, p.stderr.String())
		}
	}
}

// So is one that is to take a text for people.
func TestAFullStdoutForPeople(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	for _, args := range [][]string{{"--help"}, {"help"}, {"check", "--help"}, {"version"}, {"--version"}, {"schema"}} {
		var errs strings.Builder
		if status := run(t.Context(), args, strings.NewReader(""), full, &errs, nil); status != 1 || !strings.Contains(errs.String(), "no space left on device") {
			t.Errorf("%v: exit status %d, stderr %q", args, status, errs.String())
		}
	}
}
