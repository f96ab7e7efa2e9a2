package main_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// killedOrSaid reports whether a process ended as a shell says by 141.
func killedOrSaid(status syscall.WaitStatus) bool {
	return status.Signaled() && status.Signal() == syscall.SIGPIPE || status.ExitStatus() == 128+int(syscall.SIGPIPE)
}

// Verbs that write past the printer end as all others do where nobody reads stdout any more: with status 141 and no words. They
// said that the pipe was broken, with status 1.
func TestNobodyReadsStdout(t *testing.T) {
	s := newLive(t, nil)
	defer s.end()
	for line, stdin := range map[string]string{
		"nexus version": "", "nexus-child version": "", "nexus-child --help": "", "nexus-child schema": "", "nexus-cluster --version": "", // those of nexus-child were 0
		"nexus config schema": "",
		"nexus --fresh":       "hi\n", // of one message: it was 1, without a word
		"nexus mcp":           `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"a","version":"1"}}}` + "\n",
		"nexus acp":           `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1}}` + "\n",
	} {
		read, write, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := read.Close(); err != nil {
			t.Fatal(err)
		}
		var said strings.Builder
		words := strings.Fields(line)
		cmd := exec.Command(filepath.Join(programs, words[0]), words[1:]...)
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "NEXUS_HOME=" + s.home}
		cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), write, &said
		err = cmd.Run()
		if status := cmd.ProcessState.Sys().(syscall.WaitStatus); !killedOrSaid(status) || said.String() != "" {
			t.Errorf("%s: %v, %s", line, err, said.String())
		}
		if err := write.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
