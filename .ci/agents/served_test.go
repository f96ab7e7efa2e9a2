package agents

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"nexus.internal/cmd/internal/playedmodel"
)

// served has a server give it models through its broker: it has an address and a token of its own, no
// key, and its tokens count for the agent.
func (a agent) served(t *testing.T, url string) {
	home := t.TempDir()
	base := url
	if a.provider != "anthropic" {
		base += "/v1"
	}
	write(t, home, "config.json", object{
		"providers": object{"played": object{"type": a.provider, "base_url": base, "api_key_env": "PLAYED_KEY", "models": []object{{"id": "probe"}}}},
		"kinds": object{"mine": object{
			"protocol": a.protocol, "command": a.command(t), "models": "played", "env": object{"OPENAI_MODEL": "probe", "DISABLE_TELEMETRY": "1"},
		}},
	})
	nexus := func(arguments ...string) string {
		t.Helper()
		cmd := exec.Command(filepath.Join(os.Getenv("NEXUS_BIN"), "nexus-rpc"), arguments...)
		cmd.Env = append(os.Environ(), "NEXUS_HOME="+home, "PLAYED_KEY=the-servers-key", "ANTHROPIC_API_KEY=", "OPENAI_API_KEY=")
		said, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("nexus-rpc %q: %v\n%s", arguments, err, said)
		}
		return string(said)
	}
	defer nexus("shutdown")
	create := []string{"create", "a", "--kind", "mine", "--cwd", t.TempDir()}
	if a.protocol != "acp" { // by which programs offer the models that they know
		create = append(create, "--model", "probe")
	}
	nexus(create...)
	if text := nexus("send", "a", playedmodel.Short); strings.TrimSpace(text) == "" {
		t.Error("no answer")
	}
	var limits struct {
		Tokens   int `json:"tokens_used"`
		Requests int `json:"requests_used"`
	}
	if err := json.Unmarshal([]byte(nexus("call", "--agent", "a", "get_limits")), &limits); err != nil || limits.Tokens == 0 {
		t.Errorf("what it used: %+v, %v", limits, err)
	}
}
