package main_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Verbs that write past the printer end as all others do where nobody reads stdout any more: with status 141 and no words. They
// said that the pipe was broken, with status 1.
func TestNobodyReadsStdout(t *testing.T) {
	s := newLive(t, nil)
	defer s.end()
	for verb, stdin := range map[string]string{
		"config schema": "",
		"--fresh":       "hi\n", // of one message: it was 1, without a word
		"mcp":           `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"a","version":"1"}}}` + "\n",
		"acp":           `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1}}` + "\n",
	} {
		read, write, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := read.Close(); err != nil {
			t.Fatal(err)
		}
		var said strings.Builder
		cmd := exec.Command(filepath.Join(programs, "nexus"), strings.Fields(verb)...)
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "NEXUS_HOME=" + s.home}
		cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), write, &said
		err = cmd.Run()
		if cmd.ProcessState.ExitCode() != 141 || said.String() != "" {
			t.Errorf("nexus %s: %v, %s", verb, err, said.String())
		}
		if err := write.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
