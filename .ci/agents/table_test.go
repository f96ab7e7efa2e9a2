package agents

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// agent is one that npm brings, and what it is known to do.
type agent struct {
	name, protocol string
	pkg, version   string // of npm
	bin            string
	arguments      []string
	// env is what it needs beside what all programs find the played model by, with a directory
	// for its files.
	env func(t *testing.T, url, dir string) []string
	// asks says that it asks before it runs a command.
	asks bool
	// provider is the type of the provider whose models it can be given by a server; "" for none.
	provider string
}

var agents = []agent{
	{
		name: "claude", protocol: "claude", pkg: "@anthropic-ai/claude-code", version: "2.1.331", bin: "claude", asks: true, env: none, provider: "anthropic",
	},
	{
		// It runs commands that it takes for harmless unasked.
		name: "claude-acp", protocol: "acp", pkg: "@agentclientprotocol/claude-agent-acp", version: "0.101.0", bin: "claude-agent-acp", env: none, provider: "anthropic",
	},
	{
		name: "codex", protocol: "codex", pkg: "@openai/codex", version: "0.171.0", bin: "codex", asks: true, env: codexHome, provider: "openai-responses",
	},
	{
		// Its mode at the start is one that runs commands in Codex's sandbox unasked.
		name: "codex-acp", protocol: "acp", pkg: "@agentclientprotocol/codex-acp", version: "2.6.0", bin: "codex-acp", env: codexHome,
	},
	{
		name: "gemini", protocol: "acp", pkg: "@google/gemini-cli", version: "0.61.0", bin: "gemini", arguments: []string{"--acp"}, asks: true,
		env: none,
	},
	{
		name: "opencode", protocol: "acp", pkg: "opencode-ai", version: "1.18.33", bin: "opencode", arguments: []string{"acp"}, asks: true,
		env: func(t *testing.T, url, dir string) []string {
			return []string{"OPENCODE_DISABLE_AUTOUPDATE=1", "OPENCODE_DISABLE_MODELS_FETCH=1", "OPENCODE_CONFIG=" + write(t, dir, "opencode.json", object{
				"model": "played/probe", "permission": object{"bash": "ask"}, "provider": object{"played": object{
					"npm": "@ai-sdk/openai-compatible", "options": object{"baseURL": url + "/v1", "apiKey": "any"}, "models": object{"probe": object{"tool_call": true}},
				}},
			})}
		},
	},
	{
		name: "pi", protocol: "pi", pkg: "@mariozechner/pi-coding-agent", version: "0.73.1", bin: "pi", arguments: []string{"--provider", "anthropic"},
		env: func(t *testing.T, url, dir string) []string {
			write(t, dir, "models.json", object{"providers": object{"anthropic": object{"baseUrl": url}}})
			return []string{"PI_OFFLINE=1", "PI_CODING_AGENT_DIR=" + dir}
		},
	},
	{
		name: "qwen", protocol: "acp", pkg: "@qwen-code/qwen-code", version: "0.24.4", bin: "qwen", arguments: []string{"--acp"}, asks: true, env: none, provider: "openai",
	},
}

type object = map[string]any

func none(*testing.T, string, string) []string { return nil }

// codexHome makes the model a provider of Codex.
func codexHome(t *testing.T, url, dir string) []string {
	settings := "model = \"probe\"\nmodel_provider = \"played\"\n[model_providers.played]\nname = \"played\"\nbase_url = \"" + url + "/v1\"\nwire_api = \"responses\"\nenv_key = \"OPENAI_API_KEY\"\n"
	if err := os.WriteFile(filepath.Join(dir, "config.toml"), []byte(settings), 0o600); err != nil {
		t.Fatal(err)
	}
	return []string{"CODEX_HOME=" + dir}
}

func write(t *testing.T, dir, name string, value any) string {
	text, _ := json.MarshalIndent(value, "", "  ") // of strings
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, append(text, '\n'), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func (a agent) dir(t *testing.T) string {
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(cache, "nexus-agents", a.name+"-"+a.version)
}

func (a agent) command(t *testing.T) []string {
	return append([]string{filepath.Join(a.dir(t), "node_modules", ".bin", a.bin)}, a.arguments...)
}

// install installs it, unless it is there.
func (a agent) install(t *testing.T) {
	if _, err := os.Stat(a.command(t)[0]); err == nil {
		return
	}
	if err := os.MkdirAll(a.dir(t), 0o700); err != nil {
		t.Fatal(err)
	}
	npm := exec.Command("npm", "install", "--no-fund", "--no-audit", "--prefix", a.dir(t), a.pkg+"@"+a.version)
	if said, err := npm.CombinedOutput(); err != nil {
		t.Fatalf("not run: %s %s, as it cannot be installed: %v\n%s", a.pkg, a.version, err, said)
	}
}
