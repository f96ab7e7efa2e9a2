package main_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"nexus.internal/cmd/internal/cli"
)

// commonFlags are those of all verbs.
var commonFlags = []string{"api-key", "ca", "home", "json", "output", "port", "server"}

// refusedFlags are, of each verb that does not honour all of commonFlags, those that it refuses. A verb
// without a line here uses each of them: see that it does before you leave it out.
var refusedFlags = map[string]string{
	"acp": "json output", "backup": elsewhere + "json output", "chaos": elsewhere + "home json output",
	"cluster backup": elsewhere + "json output", "cluster import": elsewhere, "cluster init": elsewhere + "home", "cluster restore": elsewhere + "json output",
	"completion bash": allOf, "completion fish": allOf, "completion powershell": allOf, "completion zsh": allOf,
	"config check": elsewhere, "config schema": elsewhere + "home", "detect": "api-key ca server", "doctor": "ca port server",
	"import": elsewhere, "init": elsewhere, "logs clean": elsewhere, "logs list": elsewhere, "logs search": elsewhere, "logs show": elsewhere,
	"mcp": "json output", "probe": elsewhere + "home", "restore": elsewhere + "json output", "rpc": "json output",
	"serve": "api-key ca json output server", "version": elsewhere + "home",
}

// elsewhere are the flags that say where a server is and how one is let in.
const elsewhere = "api-key ca port server "

const allOf = elsewhere + "home json output"

// Each flag of all verbs is used by a verb, or is refused by it and not in its help: `nexus config schema -o
// yaml`, `nexus init --port` and `nexus logs list --port` took them without a word.
func TestFlagsAreUsedOrRefused(t *testing.T) {
	run := func(args ...string) (string, int) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // a verb that takes what it should refuse may serve
		defer cancel()
		cmd := exec.CommandContext(ctx, filepath.Join(programs, "nexus"), args...)
		cmd.Env = []string{"NEXUS_HOME=" + t.TempDir(), "PATH=/usr/bin:/bin"}
		out, err := cmd.CombinedOutput()
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			return string(out), exit.ExitCode()
		} else if err != nil {
			t.Fatal(err)
		}
		return string(out), 0
	}
	verbs := regexp.MustCompile(`(?m)^  ([a-z]+) {1,}\S`)
	flags := regexp.MustCompile(`(?m)^(?:  -., |      )--([a-z-]+)\b`)
	seen := 0
	var starting []string // those that start a server
	var walk func(verb ...string)
	walk = func(verb ...string) {
		help, _ := run(append(slices.Clone(verb), "--help")...)
		if _, below, found := strings.Cut(help, "Available Commands:\n"); found {
			below, _, _ = strings.Cut(below, "\n\n")
			for _, match := range verbs.FindAllStringSubmatch(below, -1) {
				if match[1] != "help" { // cobra's
					walk(append(slices.Clone(verb), match[1])...)
				}
			}
			return
		}
		seen++
		name := strings.Join(verb, " ")
		refused := strings.Fields(refusedFlags[name])
		var shown []string
		for _, match := range flags.FindAllStringSubmatch(help, -1) {
			shown = append(shown, match[1])
		}
		if slices.Contains(shown, "no-start") {
			starting = append(starting, strings.NewReplacer("mcp", "nexus mcp", "acp", "nexus acp").Replace(name))
		}
		for _, flag := range commonFlags {
			if no := slices.Contains(refused, flag); no == slices.Contains(shown, flag) {
				t.Errorf("the help of %s: --%s is shown: %t", name, flag, !no)
			} else if !no {
				continue
			}
			value := map[string]string{"json": "", "port": "=1", "output": "=yaml"}[flag]
			if value == "" && flag != "json" {
				value = "=x"
			}
			if out, status := run(append(slices.Clone(verb), "--"+flag+value)...); status != 2 || !strings.Contains(out, name+" has no --"+flag+": ") {
				t.Errorf("%s --%s: exit status %d, %s", name, flag, status, out)
			}
		}
	}
	walk()
	if seen < 50 {
		t.Errorf("only %d verbs were found", seen)
	}
	page, err := os.ReadFile("../OPERATIONS.md")
	if err != nil {
		t.Fatal(err)
	}
	_, sentence, _ := strings.Cut(string(page), "**Starting a server.** If ")
	sentence, _, _ = strings.Cut(sentence, " finds no server")
	var told []string
	for _, match := range regexp.MustCompile("`([a-z ]+)`").FindAllStringSubmatch(sentence, -1) {
		told = append(told, match[1])
	}
	slices.Sort(told)
	if slices.Sort(starting); !slices.Equal(told, starting) {
		t.Errorf("cmd/OPERATIONS.md has %q, and --no-start have %q", told, starting)
	}
	_, synopsis, _ := strings.Cut(string(page), "\n`nexus serve [PORT] ")
	synopsis, _, _ = strings.Cut(synopsis, "\n\n")
	out, _ := run("serve", "--help")
	out, _, _ = strings.Cut(out, "\nGlobal Flags:")
	for _, match := range regexp.MustCompile(`(?m)^ +(?:-., )?(--[a-z-]+)`).FindAllStringSubmatch(out, -1) {
		if flag := match[1]; flag != "--help" && !strings.Contains(synopsis, flag+" ") && !strings.Contains(synopsis, flag+"]") {
			t.Errorf("the synopsis of nexus serve in cmd/OPERATIONS.md lacks %s", flag)
		}
	}
	out, _ = run("--help")
	ofRPC := cli.Verbs()
	for _, match := range regexp.MustCompile(`(?m)^  ([a-z]+)  +[A-Z]`).FindAllStringSubmatch(out, -1) {
		if _, verb := ofRPC[match[1]]; !verb && match[1] != "help" && match[1] != "completion" && !regexp.MustCompile("(?m)^\\| .*`nexus "+match[1]+"[ `]").Match(page) {
			t.Errorf("the programs of cmd/OPERATIONS.md §2 lack nexus %s", match[1])
		}
	}
	if out, status := run("--fresh", "--json"); status != 2 || !strings.Contains(out, "are for verbs") {
		t.Errorf("a talk with --json: exit status %d, %s", status, out)
	}
	if out, status := run("config", "schema", "-o", "yaml"); status != 0 || !strings.HasPrefix(out, "\"$schema\":") && !strings.HasPrefix(out, "$schema:") {
		t.Errorf("config schema as YAML: exit status %d, %.200s", status, out)
	}
}

// A message that cannot be sent starts no server: `echo | nexus --fresh` did, and left it.
func TestMessageIsReadBeforeAServerIsStarted(t *testing.T) {
	for message, want := range map[string]string{" \n": "the message on stdin is empty", "\xff": "the message on stdin is not UTF-8"} {
		home := filepath.Join(t.TempDir(), "home")
		cmd := exec.Command(filepath.Join(programs, "nexus"), "--fresh")
		cmd.Env, cmd.Stdin = []string{"NEXUS_HOME=" + home, "PATH=/usr/bin:/bin"}, strings.NewReader(message)
		out, err := cmd.CombinedOutput()
		endLeftOver(home)
		if _, is := errors.AsType[*exec.ExitError](err); !is || !strings.Contains(string(out), want) {
			t.Errorf("%q: %v, %s", message, err, out)
		}
		if _, err := os.Stat(home); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%q: a server was started: %v", message, err)
		}
	}
}

// A server that cannot be meant is refused before stdin is read: where a pipe stays open, it never was.
func TestServerIsCheckedBeforeStdinIsRead(t *testing.T) {
	for flags, want := range map[string]string{
		"--connect=ftp://x":                               "--connect takes http://127.0.0.1:PORT, or https://HOST:PORT",
		"--connect 17733":                                 "--connect takes http://127.0.0.1:PORT, or https://HOST:PORT and others after commas, not \"17733\"",
		"--fresh --connect nonsense":                      "--connect takes http://127.0.0.1:PORT, or https://HOST:PORT and others after commas, not \"nonsense\"",
		"--connect --fresh --resume":                      "--resume, --fresh, --session and --agent exclude each other",
		"--connect=https://x/y":                           "want http://127.0.0.1:PORT, or https://HOST:PORT",
		"--connect=http://127.0.0.1:70000":                "must be from 1 to 65535",
		"--connect=http://127.0.0.1:1 --server=https://x": "--server and --connect with a URL exclude each other",
		"--fresh --server=ftp://x":                        "--server: server URL",
		"list --server http://127.0.0.1:99999":            `--server: server URL "http://127.0.0.1:99999": the port must be from 1 to 65535`,
		"list --server https://a:1,https://b:0":           `--server: server URL "https://b:0": the port must be from 1 to 65535`,
		"list --server 127.0.0.1:8765":                    `--server: server URL "127.0.0.1:8765": write http://127.0.0.1:8765`,
		"list --server [::1]:8765":                        `write http://[::1]:8765`,
		"list --server a.example:8765":                    `--server: server URL "a.example:8765": write https://a.example:8765`,
		"--fresh --server=https://127.0.0.1:1 --port=1":   "--server and --port exclude each other",
		"--fresh --connect=https://127.0.0.1:1 --port=1":  "--server and --port exclude each other",
	} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		cmd := exec.CommandContext(ctx, filepath.Join(programs, "nexus"), strings.Fields(flags)...)
		cmd.Env = []string{"NEXUS_HOME=" + t.TempDir(), "PATH=/usr/bin:/bin"}
		if _, err := cmd.StdinPipe(); err != nil { // nothing is written, and it is closed after the end
			t.Fatal(err)
		}
		out, err := cmd.CombinedOutput()
		cancel()
		if exit, is := errors.AsType[*exec.ExitError](err); !is || exit.ExitCode() != 2 || !strings.Contains(string(out), want) {
			t.Errorf("%s: %v, %s", flags, err, out)
		}
	}
}

// A flag of a talk that stands at a verb is told to be that, and not to be unknown.
func TestFlagsOfATalkAtAVerb(t *testing.T) {
	for line, want := range map[string]string{
		"--fresh list":             "nexus: --fresh is a flag of a talk, which is nexus without a verb, and list is a verb: nexus list --help has its flags",
		"--session a send b c":     "--session is a flag of a talk",
		"keys create --verbose":    "and keys create is a verb: nexus keys create --help has its flags",
		"list --freshh":            "unknown flag: --freshh",
		"list --version":           "unknown flag: --version",
		"--resume --nonsense list": "unknown flag: --nonsense",
	} {
		cmd := exec.Command(filepath.Join(programs, "nexus"), strings.Fields(line)...)
		cmd.Env = []string{"NEXUS_HOME=" + t.TempDir(), "PATH=/usr/bin:/bin"}
		out, err := cmd.CombinedOutput()
		if exit, is := errors.AsType[*exec.ExitError](err); !is || exit.ExitCode() != 2 || !strings.Contains(string(out), want) {
			t.Errorf("%s: %v, %s", line, err, out)
		}
	}
}

// What comes before initialize is answered with a code of JSON-RPC; it was 0.
func TestMCPBeforeInitialize(t *testing.T) {
	cmd := exec.Command(filepath.Join(programs, "nexus"), "mcp", "--no-start")
	cmd.Env = []string{"NEXUS_HOME=" + t.TempDir(), "PATH=/usr/bin:/bin"}
	cmd.Stdin = strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}
{"jsonrpc":"2.0","id":"two","method":"tools/call","params":{"name":"status"}}
{"jsonrpc":"2.0","id":3,"method":"no/such"}
{"jsonrpc":"2.0","id":4,"method":"ping"}
`)
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"id":1,"error":{"code":-32600,`, `"id":"two","error":{"code":-32600,`, `"id":3,"error":{"code":-32600,`, `"id":4,"result":{}`} {
		if !strings.Contains(string(out), want) {
			t.Errorf("no %s in %s", want, out)
		}
	}
}
