package main_test

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
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

// nexus mcp is another verb than nexus-rpc mcp AGENT, and says so to whoever names an agent.
func TestAgentOfNexusMCP(t *testing.T) {
	out, err := exec.Command(filepath.Join(programs, "nexus"), "mcp", "w").CombinedOutput()
	if want := "nexus: nexus mcp takes no arguments: the MCP servers of an agent are those of nexus-rpc mcp w\n"; err == nil || string(out) != want {
		t.Errorf("%v, %q, want %q", err, out, want)
	}
}

// --help behind a verb that there is not is an error, also below verbs whose help leaves out flags that
// they have not: `nexus logs remove --help` printed the help of logs.
func TestHelpOfUnknownVerbOfNexus(t *testing.T) {
	for args, want := range map[string]string{
		"logs remove --help":     `nexus: unknown verb "remove": see nexus logs --help`,
		"logs --help lits":       `nexus: unknown verb "lits": did you mean nexus logs list?`,
		"config chek -h":         `nexus: unknown verb "chek": did you mean nexus config check?`,
		"logs list --help":       "",
		"serve --help":           "",
		"config check --help":    "",
		"backup somefile --help": "",
	} {
		out, err := exec.Command(filepath.Join(programs, "nexus"), strings.Fields(args)...).CombinedOutput()
		if want == "" && (err != nil || !strings.Contains(string(out), "Usage:") || strings.Contains(string(out), "(default [")) || want != "" && (err == nil || string(out) != want+"\n") {
			t.Errorf("%s: %v, %q, want %q", args, err, out, want)
		}
	}
}

// The help of logs names the flags by which a server writes some.
func TestHelpOfLogs(t *testing.T) {
	out, err := exec.Command(filepath.Join(programs, "nexus"), "logs", "--help").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--log-sessions") {
		t.Errorf("%v, %s", err, out)
	}
}
