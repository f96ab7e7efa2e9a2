package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/go-json-experiment/json"

	"nexus.internal/cmd/internal/config"
	"nexus.internal/protocol"
)

// confinement has agents run a program, sandboxed and with named hosts.
func (d *doctor) confinement(ctx context.Context, path string) {
	dir, err := os.MkdirTemp("", "nexus-doctor-")
	if err != nil {
		d.add("confinement", isWarn, "make room for temporary files (TMPDIR), and call doctor again: this was not looked at", "%v", err)
		return
	}
	defer os.RemoveAll(dir)
	home, work, scenario := filepath.Join(dir, "home"), filepath.Join(dir, "work"), filepath.Join(dir, "scenario.json")
	if err := os.Mkdir(work, 0o700); err != nil {
		d.add("confinement", isWarn, "make room for temporary files (TMPDIR), and call doctor again: this was not looked at", "%v", err)
		return
	}
	const play = `{"turns":[{"match":"run","steps":[{"tool":{"name":"shell","input":{"command":"echo confined"}}},{"text":"done"}]}]}`
	if err := os.WriteFile(scenario, []byte(play), 0o600); err != nil {
		d.add("confinement", isWarn, "make room for temporary files (TMPDIR), and call doctor again: this was not looked at", "%v", err)
		return
	}
	for _, one := range []struct{ check, permissions, instead string }{
		{"confinement", `{"preset":"sandboxed"}`, "sandboxed agents run no programs here: use another kernel (5.13 with Landlock, or newer), or trusted agents"},
		{"named hosts", `{"preset":"sandboxed","network":["example.com"]}`, "programs of agents with network run not here: allow user namespaces (sysctl kernel.unprivileged_userns_clone=1, or the like)"},
	} {
		// A key is what keeps others from looking into an agent's process, which takes another way to a network.
		a, err := ask(ctx, path, append(d.app.Environ, "NEXUS_HOME="+home, "OPENAI_API_KEY=none"), "run", "--no-session", "--model", "offline", "--cwd", work, "--scenario", scenario, "--permissions", one.permissions)
		switch {
		case err != nil:
			d.add(one.check, isFail, one.instead, "%v", err)
		case !strings.HasPrefix(a.result, "confined\n"):
			d.add(one.check, isWarn, one.instead, "%s", firstLine(a.result))
		default:
			d.add(one.check, isOK, "", "the kernel confines programs")
		}
	}
}

// providers asks a model of each provider that is used for one token.
func (d *doctor) providers(ctx context.Context, path string) {
	def, err := d.cfg.Models.Choose(config.Wish{})
	if err != nil {
		d.add("provider", isFail, "name another default_model in config.json", "%v", err)
	}
	for _, name := range d.cfg.UsedProviders() {
		p, err := d.cfg.Models.Provider(name)
		if err != nil {
			continue // the configuration says so
		}
		model := def.Model
		switch {
		case def.Name == name:
		case p.Type == "offline":
			continue
		case len(p.Models) > 0:
			model = p.Models[0].ID
		default:
			d.add("provider", isWarn, "name one in providers."+name+".models", "%s: no model of it is named, so none was asked", name)
			continue
		}
		d.provider(ctx, path, name, p.Type, model)
	}
}

// provider asks one model.
func (d *doctor) provider(ctx context.Context, path, name, kind, model string) {
	tokens := 1
	if kind == "openai-responses" {
		tokens = 16 // the least that these take
	}
	a, err := ask(ctx, path, append(d.app.Environ, "NEXUS_HOME="+string(d.cfg.Home)), "Answer with the word: ok",
		"--no-session", "--provider", name, "--model", model, "--settings", fmt.Sprintf(`{"max_output_tokens":%d}`, tokens))
	if err != nil {
		d.add("provider", isFail, "see that the key is valid, the model and base_url are right, and the network lets it through", "%s/%s: %v", name, model, err)
		return
	}
	d.add("provider", isOK, "", "%s/%s answers: %.40q (%d tokens in, %d out)", name, model, a.text, a.in, a.out)
}

// asked is what an agent has answered.
type asked struct {
	text    string // of the model
	result  string // of its last call
	in, out uint64 // tokens
}

// ask has a nexus-child of its own answer one prompt.
func ask(ctx context.Context, path string, env []string, message string, args ...string) (a asked, err error) {
	ctx, cancel := context.WithTimeout(ctx, playPatience)
	defer cancel()
	prompt, err := json.Marshal(protocol.Prompt{ID: "doctor", Message: message, Attachments: []protocol.Attachment{}})
	if err != nil {
		return a, err
	}
	cmd := exec.CommandContext(ctx, path, append([]string{"rpc"}, args...)...)
	cmd.Env, cmd.Stdin = env, bytes.NewReader(append(append([]byte(`{"type":"prompt",`), prompt[1:]...), '\n'))
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	said := ""
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		var frame struct {
			Type  string `json:"type"`
			OK    *bool  `json:"ok"`
			Error string `json:"error"`
			Event struct {
				Type   string `json:"type"`
				Delta  string `json:"delta"`
				Result string `json:"result"`
			} `json:"event"`
			Usage struct {
				In  uint64 `json:"input_tokens"`
				Out uint64 `json:"output_tokens"`
			} `json:"usage"`
			Command string `json:"command"`
		}
		if json.Unmarshal(lines.Bytes(), &frame) != nil {
			continue
		}
		switch {
		case frame.Event.Type == "text_delta":
			a.text += frame.Event.Delta
		case frame.Event.Type == "toolcall_result":
			a.result = frame.Event.Result
		case frame.Type == "agent_end":
			a.in, a.out = frame.Usage.In, frame.Usage.Out
		case frame.Command == "prompt" && !protocol.Value(frame.OK):
			said = frame.Error
		}
	}
	switch {
	case said != "":
		return a, errors.New(said)
	case err != nil && stderr.Len() > 0:
		return a, fmt.Errorf("%w: %s", err, firstLine(stderr.String()))
	}
	return a, err
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return line
}
