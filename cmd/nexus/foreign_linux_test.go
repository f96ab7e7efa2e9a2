package main_test

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/tidwall/gjson"
)

// newForeign is a server with a service of models that wants a key, and a user with logins. Its agents
// are shells that run each prompt as a script.
func newForeign(t *testing.T) (*live, *countingService, string) {
	t.Helper()
	service, user := newCountingService(t), t.TempDir()
	for _, name := range []string{".claude/.credentials.json", ".codex/auth.json", ".config/gh/hosts.yml", ".npmrc", ".gitconfig"} {
		path := filepath.Join(user, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("decoy"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	config := fmt.Sprintf(`{"providers":{"chat":{"type":"openai","base_url":"%s/v1","api_key_env":"CHAT_KEY","models":[{"id":"m","price":{"input":1000,"output":2000}}]}},
		"kinds":{"shell":{"protocol":"pipe","command":["/bin/bash","-c","eval \"$(cat)\""],"agents":true}},"server":{"allow_yolo":true}}`, service.URL)
	scenario := filepath.Join(t.TempDir(), "scenario.json")
	text := `{"turns":[
		{"match":"make a shell","steps":[{"tool":{"name":"nexus_create","input":{"agent_id":"below","kind":"shell","preset":"trusted"}}},{"text":"Done."}]},
		{"match":"make it kept","steps":[{"tool":{"name":"nexus_create","input":{"agent_id":"kept","kind":"shell","initial_message":"echo it runs"}}},{"text":"Done."}]},
		{"match":"make a pipe","steps":[{"tool":{"name":"nexus_create","input":{"agent_id":"piped","kind":"pipe"}}},{"text":"Done."}]}]}`
	if err := os.WriteFile(scenario, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return newLive(t, func(cmd *exec.Cmd) {
		cmd.Args = append(cmd.Args, "--scenario", scenario)
		cmd.Env = append(cmd.Env, "CHAT_KEY=the-servers-key", "HOME="+user, "SOME_TOKEN=not asked for")
		for _, v := range cmd.Env {
			if home, ok := strings.CutPrefix(v, "NEXUS_HOME="); ok {
				if err := os.WriteFile(filepath.Join(home, "config.json"), []byte(config), 0o600); err != nil {
					t.Fatal(err)
				}
			}
		}
	}), service, user
}

// run has an agent run a script, and returns what it wrote.
func (s *live) run(agent, script string) string {
	s.Helper()
	answer := s.send(agent, script)
	if gjson.Get(answer, "error").Exists() {
		return answer
	}
	return gjson.Get(answer, "result.content").String()
}

// askModels is a script that asks at the address of models, or another, with the token, or another.
func askModels(address, token string) string {
	return `address=` + address + ` token=` + token + `
: ${address:=${OPENAI_BASE_URL#http://}} ${token:=$OPENAI_API_KEY}
address=${address%%/*}
exec 3<>/dev/tcp/${address%:*}/${address#*:} || { echo no way; exit; }
body='{"model":"m","messages":[]}'
printf 'POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s' "$token" ${#body} "$body" >&3
cat <&3`
}

func (s *live) createForeign(id, more string) {
	s.Helper()
	answer := s.call("/", "create_agent", fmt.Sprintf(`{"agent_id":%q,"kind":"shell","cwd":%q%s}`, id, s.cwd, more))
	if got := gjson.Get(answer, "result.agent_id").String(); got != id {
		s.Fatalf("create %s: %s", id, answer)
	}
}

// Programs of other makes reach the broker's models with a token of their own and no key, in any walls; what they
// use counts for their agents; and no token is good at another agent's address.
func TestModelsOfPrograms(t *testing.T) {
	t.Parallel()
	s, service, _ := newForeign(t)
	defer s.end()
	walls := map[string]string{
		"open": `,"preset":"trusted"`, "walled": `,"preset":"trusted","sandbox":true`, "closed": `,"preset":"sandboxed","sandbox":true`,
		"beside": `,"preset":"sandboxed","sandbox":true`,
	}
	tokens := map[string]string{}
	for id, wall := range walls {
		s.createForeign(id, wall+`,"models":"chat","limits":{"tokens":2000}`)
		if got := s.run(id, askModels("", "")); !strings.HasPrefix(got, "HTTP/1.1 200") || !strings.Contains(got, "well") {
			t.Errorf("%s: %s", id, got)
		}
		if got := s.call("/agent/"+id, "get_limits", `{}`); gjson.Get(got, "result.tokens_used").Int() != 1500 {
			t.Errorf("%s: limits %s", id, got)
		}
		tokens[id] = s.run(id, "echo -n $OPENAI_API_KEY")
		if got := s.run(id, askModels("", "nexus-"+strings.Repeat("A", 52))); !strings.HasPrefix(got, "HTTP/1.1 401") {
			t.Errorf("%s with a wrong token: %s", id, got)
		}
		if got := s.run(id, askModels("", tokens[id])); !strings.HasPrefix(got, "HTTP/1.1 200") {
			t.Errorf("%s, the second time: %s", id, got)
		}
		if got := s.run(id, askModels("", "")); !strings.HasPrefix(got, "HTTP/1.1 402") {
			t.Errorf("%s beyond its budget: %s", id, got)
		}
	}
	if service.asked() == "" || tokens["open"] == tokens["closed"] || len(tokens["open"]) != 58 {
		t.Errorf("tokens: %v", tokens)
	}
	if got := s.run("beside", askModels("", tokens["closed"])); !strings.HasPrefix(got, "HTTP/1.1 401") {
		t.Errorf("with the token of another agent: %s", got)
	}
	own := s.run("closed", "echo -n $OPENAI_BASE_URL") // on a loopback of the agent's own, so the machine may have that port, too
	port, err := net.Listen("tcp4", "127.0.0.1:0")
	for err == nil && strings.Contains(own, port.Addr().String()+"/") {
		defer port.Close()
		port, err = net.Listen("tcp4", "127.0.0.1:0")
	}
	if err != nil {
		t.Fatal(err)
	}
	defer port.Close()
	if got := s.run("closed", askModels(port.Addr().String(), "")+" 2>&1"); !strings.Contains(got, "no way") {
		t.Errorf("another port of the machine: %s", got)
	}
}

// A program's environment is what was asked for and no more, and its own home has nobody's logins.
func TestEnvironmentOfPrograms(t *testing.T) {
	t.Parallel()
	s, _, user := newForeign(t)
	defer s.end()
	s.createForeign("own", `,"env":{"ASKED":"for","SECRET_API_KEY":"named"},"models":"chat"`)
	s.createForeign("user", `,"home":"user"`)
	const names = `env -0 | tr '\n' ' ' | tr '\0' '\n' | cut -d= -f1 | sort | tr '\n' ' '`
	got := s.run("own", names)
	const want = "ASKED CARGO_HOME GOCACHE GOMODCACHE GRADLE_USER_HOME HOME OLDPWD OPENAI_API_BASE OPENAI_API_KEY OPENAI_BASE_URL PATH PIP_CACHE_DIR PWD " +
		"SECRET_API_KEY SHLVL TERM TMPDIR UV_CACHE_DIR XDG_CACHE_HOME YARN_CACHE_FOLDER _ npm_config_cache "
	for name := range strings.FieldsSeq(got) {
		if !strings.Contains(" "+want+"LANG USER LOGNAME TZ ", " "+name+" ") {
			t.Errorf("the environment has %s", name)
		}
	}
	if !strings.Contains(got, "ASKED ") || !strings.Contains(got, "SECRET_API_KEY ") {
		t.Errorf("the environment is %s", got)
	}
	if got := s.run("own", "env; ls -A ~ ~/.claude ~/.codex ~/.config 2>/dev/null"); strings.Contains(got, user) || strings.Contains(got, "credentials") || strings.Contains(got, "the-servers-key") {
		t.Errorf("it finds %s", got)
	}
	if got := s.run("user", "cat ~/.claude/.credentials.json"); got != "decoy" {
		t.Errorf("the user's home: %s", got)
	}
	// What lies in the own home is there as long as the agent, and no copy has it.
	s.run("own", "mkdir -p ~/.claude; echo mine >~/.claude/login")
	s.call("/", "destroy_agent", `{"agent_id":"own"}`)
	s.createForeign("own", "")
	if got := s.run("own", "cat ~/.claude/login"); got != "mine\n" {
		t.Errorf("after a restart: %s", got)
	}
	if got := s.call("/", "clone_session", `{"src_session":"own","dest_session":"copy"}`); !gjson.Get(got, "result.cloned").Bool() {
		t.Fatalf("clone: %s", got)
	}
	s.createForeign("copy", "")
	if got := s.run("copy", "ls -A ~/.claude 2>&1; echo $OPENAI_BASE_URL"); !strings.Contains(got, "No such file") || !strings.Contains(got, "http://127.0.0.1:") {
		t.Errorf("the copy: %s", got)
	}
}

// What sandbox says holds under all presets, yolo too.
func TestWallsOfPrograms(t *testing.T) {
	t.Parallel()
	s, _, user := newForeign(t)
	defer s.end()
	outside := t.TempDir()
	for id, preset := range map[string]string{"t": "trusted", "s": "sandboxed", "y": "yolo"} {
		s.createForeign(id, `,"sandbox":true,"preset":"`+preset+`"`)
		got := s.run(id, `exec 2>/dev/null
for dir in . ~ $TMPDIR `+outside+` `+user+` `+s.home+` /etc; do echo x >$dir/it && echo "writes $dir"; done
cat `+s.home+`/config.json && echo reads the home of nexus`)
		if strings.Count(got, "writes") != 3 || strings.Contains(got, outside) || strings.Contains(got, user) || strings.Contains(got, s.home+"\n") || strings.Contains(got, "reads") {
			t.Errorf("%s: %s", preset, got)
		}
	}
}

// An agent that an agent creates has walls whatever its kind says, and a kind that the owner lets agents have.
func TestProgramsOfAgents(t *testing.T) {
	t.Parallel()
	s, _, _ := newForeign(t)
	defer s.end()
	if got := s.call("/", "create_agent", fmt.Sprintf(`{"agent_id":"boss","preset":"yolo","cwd":%q}`, s.cwd)); gjson.Get(got, "error").Exists() {
		t.Fatal(got)
	}
	s.send("boss", "make a shell")
	outside := t.TempDir()
	if got := s.run("below", "echo x >it && echo inside; echo x >"+outside+"/it && echo outside; true"); got != "inside\n" {
		t.Errorf("it writes %s", got)
	}
	s.send("boss", "make a pipe")
	if got := s.call("/agent/piped", "get_state", `{}`); !strings.Contains(got, "AGENT_NOT_FOUND") {
		t.Errorf("an agent of a kind that agents may not have: %s", got)
	}
	if got := s.call("/agent/boss", "get_messages", `{}`); !strings.Contains(got, "cannot create agents of kind pipe") {
		t.Errorf("boss was told %s", got)
	}
}

// The program of an agent that an agent creates does nothing unasked that its creator is asked about: what is trusted gets one that is sandboxed,
// and one that runs programs unasked gets what it asks for.
func TestProgramsOfAgentsThatAreAsked(t *testing.T) {
	t.Parallel()
	for mode, want := range map[string]string{"": "shell without asking", "allow": ""} {
		t.Run("shell "+mode, func(t *testing.T) {
			s, _, _ := newForeign(t)
			defer s.end()
			s.create("boss", `{}`)
			if mode != "" {
				s.call("/agent/boss", "set_permissions", `{"tools":{"shell":{"mode":"`+mode+`"}}}`)
			}
			s.send("boss", "make a shell")
			made := !strings.Contains(s.call("/agent/below", "get_state", `{}`), "AGENT_NOT_FOUND")
			if told := s.call("/agent/boss", "get_messages", `{}`); made != (want == "") || !strings.Contains(told, want) {
				t.Errorf("made: %v; boss was told %s", made, told)
			}
			s.send("boss", "make it kept")
			if told := s.call("/agent/boss", "get_messages", `{}`); !strings.Contains(told, "it runs\\n") && !strings.Contains(told, `it runs\n`) {
				t.Errorf("a sandboxed one: boss was told %s", told)
			}
		})
	}
}

// Nothing that a program has started outlives it, its nexus-child or the server, whatever kills that.
func TestTreesOfPrograms(t *testing.T) {
	t.Parallel()
	for _, killed := range []string{"program", "child", "server", "destroyed"} {
		t.Run(killed, func(t *testing.T) {
			s, _, _ := newForeign(t)
			s.createForeign("a", `,"sandbox":true`)
			pids := filepath.Join(s.cwd, "pids")
			var sending sync.WaitGroup
			defer sending.Wait()
			sending.Go(func() {
				_, _, _ = request("POST", s.url+"/agent/a", map[string][]string{"Authorization": {"Bearer " + s.key}},
					`{"jsonrpc":"2.0","id":1,"method":"send","params":{"content":"setsid sleep 3001 & (setsid sh -c 'echo $$ >>all; exec sleep 3002' &); echo $! >>all; echo $$ >program; while [ $(wc -w <all) -lt 2 ]; do sleep 0.05; done; mv all pids; wait"}}`)
			})
			started := eventually(t, "the program's processes", func() (string, error) {
				text, err := os.ReadFile(pids)
				return string(text), err
			})
			program, err := os.ReadFile(filepath.Join(s.cwd, "program"))
			if err != nil {
				t.Fatal(err)
			}
			var all []int
			for word := range strings.FieldsSeq(string(program) + " " + started) {
				pid, err := strconv.Atoi(word)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := os.Stat("/proc/" + word); err != nil {
					t.Errorf("it does not run: %v", err)
				}
				all = append(all, pid)
			}
			child := int(gjson.Get(s.call("/", "list_agents", `{}`), "result.agents.0.pid").Int())
			if len(all) != 3 || child <= 1 {
				t.Fatalf("processes %d, child %d", all, child)
			}
			switch killed {
			case "program":
				_ = syscall.Kill(all[0], syscall.SIGKILL)
			case "child":
				_ = syscall.Kill(child, syscall.SIGKILL)
			case "server":
				_ = s.cmd.Process.Kill()
				_ = s.cmd.Wait()
			case "destroyed":
				s.call("/", "destroy_agent", `{"agent_id":"a"}`)
			}
			eventually(t, "their end", func() (bool, error) {
				for _, pid := range all {
					if _, err := os.Stat(fmt.Sprint("/proc/", pid)); err == nil {
						return false, fmt.Errorf("process %d is left", pid)
					}
				}
				return true, nil
			})
			if killed != "server" {
				s.end()
			}
		})
	}
}
