package config_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"nexus.internal/cmd/internal/config"
	"nexus.internal/protocol"
	"nexus.internal/protocol/safefile"
)

func write(t *testing.T, path, text string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func load(t *testing.T, personal string, env ...string) *config.Config {
	t.Helper()
	home := t.TempDir()
	if personal != "" {
		write(t, filepath.Join(home, "config.json"), personal)
	}
	c, err := config.Load(append(env, "NEXUS_HOME="+home), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestPathsAndDirs(t *testing.T) {
	c := load(t, "", "NEXUS3_API_KEY=nxk_1")
	if c.APIKey != "nxk_1" {
		t.Errorf("key %q", c.APIKey)
	}
	if got := c.Home.KeyPath(8765); got != c.Home.Path("server.key") {
		t.Errorf("got %s", got)
	}
	if got := c.Home.KeyPath(9000); got != c.Home.Path("server-9000.key") {
		t.Errorf("got %s", got)
	}
	if err := c.Home.MakeDirs(); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{c.Home.SessionsDir(), c.Home.RunDir(), c.Home.LogsDir()} {
		if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("%s: %v", dir, err)
		}
	}
}

// A server reads nothing of a home that others may write, and makes nothing there.
func TestHomeThatOthersMayWrite(t *testing.T) {
	c := load(t, "")
	if err := os.Chmod(string(c.Home), 0o777); err != nil {
		t.Fatal(err)
	}
	_, err := config.Load([]string{"NEXUS_HOME=" + string(c.Home)}, "")
	for what, err := range map[string]error{"read": err, "make": c.Home.MakeDirs()} {
		if err == nil || !strings.Contains(err.Error(), "run chmod go-w "+string(c.Home)) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := os.Stat(c.Home.RunDir()); err == nil {
		t.Error("run was made")
	}
}

const vendors = `{"providers":{
	"router":{"type":"openai","base_url":"http://127.0.0.1:1/v1","api_key_env":"ROUTER_KEY","models":[{"id":"maker/big","context_window":5000},{"id":"small"}]},
	"local":{"type":"openai","base_url":"http://127.0.0.1:2/v1","auth_method":"none"}}`

func TestChoose(t *testing.T) {
	tests := []struct {
		name   string
		config string
		wish   config.Wish
		want   string // provider model, or a part of the error
	}{
		{"nothing configured", "", config.Wish{}, "offline offline"},
		{"the default model", vendors + `,"default_model":"small"}`, config.Wish{}, "router small"},
		{"the default model of a provider", vendors + `,"default_model":"local/llama"}`, config.Wish{}, "local llama"},
		{"the default provider", vendors + `,"default_provider":"router"}`, config.Wish{}, "router maker/big"},
		{"a slash in a model's id", vendors + "}", config.Wish{Model: "maker/big"}, "router maker/big"},
		{"provider and model in one", vendors + "}", config.Wish{Model: "local/any/thing"}, "local any/thing"},
		{"provider and model apart", vendors + "}", config.Wish{Provider: "local", Model: "m"}, "local m"},
		{"an id alone, by whose list has it", vendors + "}", config.Wish{Model: "offline", Current: "local"}, "offline offline"},
		{"an id alone, else of the current provider", vendors + "}", config.Wish{Model: "m", Current: "local"}, "local m"},
		{"another provider than the default model's", vendors + `,"default_model":"local/llama"}`, config.Wish{Provider: "router"}, "router maker/big"},
		{"an unknown model", vendors + "}", config.Wish{Provider: "router", Model: "x"}, `unknown model "x" of provider "router" (it has: maker/big, small)`},
		{"an unknown provider", "", config.Wish{Provider: "x"}, `unknown provider "x" (there are: anthropic, azure, deepseek, gemini, groq, mistral, offline, ollama, openai, openrouter)`},
		{"a provider that is nearly one", "", config.Wish{Provider: "opnai"}, `unknown provider "opnai" (there are: anthropic, azure, deepseek, gemini, groq, mistral, offline, ollama, openai, openrouter); did you mean "openai"?`},
		{"a model of an unknown provider", "", config.Wish{Model: "nosuch/x"}, `unknown provider "nosuch" of model "nosuch/x" (there are: anthropic, azure, deepseek, gemini, groq, mistral, offline, ollama, openai, openrouter)`},
		{"a model of a provider that is nearly one", "", config.Wish{Model: "opnai/ft/x"}, `; did you mean "openai/ft/x"?`},
		{"a slash in an id of a provider without a list", vendors + "}", config.Wish{Model: "nosuch/x", Current: "local"}, "local nosuch/x"},
		{"a slash in an unknown id of a provider", vendors + "}", config.Wish{Provider: "router", Model: "nosuch/x"}, `unknown model "nosuch/x" of provider "router"`},
		{"the same in one", vendors + "}", config.Wish{Model: "router/nosuch/x"}, `unknown model "nosuch/x" of provider "router"`},
		{"a prefix that ids of a list have", vendors + "}", config.Wish{Model: "maker/bg", Current: "router"}, `unknown model "maker/bg" of provider "router" (it has: maker/big, small); did you mean "maker/big"?`},
		{"a model's name that is too long", "", config.Wish{Model: strings.Repeat("m", 257)}, "model: the name is 257 bytes long, at most 256 are allowed"},
		{"one that is not, with its provider", vendors + "}", config.Wish{Model: "local/" + strings.Repeat("m", 256)}, "local mmm"},
		{"a control character", "", config.Wish{Model: "a\nb"}, "model: the name has a control character"},
		{"a provider's name that is too long", "", config.Wish{Provider: strings.Repeat("p", 257)}, "provider: the name is 257 bytes long"},
		{"the scenario's", vendors + `,"default_model":"local/llama"}`, config.Wish{Scenario: true}, "offline offline"},
		{"another than the scenario's", vendors + "}", config.Wish{Scenario: true, Provider: "local", Model: "m"}, "local m"},
		{"a model of an unknown provider, with a scenario", "", config.Wish{Scenario: true, Model: "nosuch/x"}, `unknown provider "nosuch" of model "nosuch/x" (there are: anthropic, azure, deepseek, gemini, groq, mistral, offline, ollama, openai, openrouter)`},
		{"a model of another provider, with a scenario", vendors + "}", config.Wish{Scenario: true, Model: "local/m"}, `unknown model "local/m" of provider "offline"`},
		{"no model chosen", "", config.Wish{Provider: "openai"}, "has no default model"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			choice, err := load(t, tt.config).Models.Choose(tt.wish)
			got := choice.Name + " " + choice.Model
			if err != nil {
				got = err.Error()
			}
			if !strings.Contains(got, tt.want) {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}

// A provider of a file that says neither where it is nor how it takes the key is
// the vendor's own.
func TestVendors(t *testing.T) {
	c := load(t, `{"providers":{
		"second":{"type":"anthropic","api_key_env":"SECOND_KEY"},
		"azure":{"type":"openai","base_url":"https://azure.example/v1","auth_method":"api-key","api_key_env":"AZURE_KEY"}}}`)
	for name, want := range map[string]string{
		"openai":    "https://api.openai.com/v1 bearer",
		"anthropic": "https://api.anthropic.com x-api-key",
		"second":    "https://api.anthropic.com x-api-key",
		"azure":     "https://azure.example/v1 api-key",
		"offline":   " none",
	} {
		p, err := c.Models.Provider(name)
		if got := p.BaseURL + " " + p.AuthMethod; err != nil || got != want {
			t.Errorf("%s: got %q, %v, want %q", name, got, err, want)
		}
	}
}

func TestKey(t *testing.T) {
	c := load(t, vendors+"}", "ROUTER_KEY=secret")
	for provider, want := range map[string]string{"router/small": "secret", "local/m": "", "offline/offline": ""} {
		choice, err := c.Models.Choose(config.Wish{Model: provider})
		if err != nil {
			t.Fatal(err)
		}
		if key, err := c.Key(choice); key != want || err != nil {
			t.Errorf("%s: got %q, %v, want %q", provider, key, err, want)
		}
	}
	choice, err := c.Models.Choose(config.Wish{Model: "openai/m"})
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Key(choice)
	if missing, ok := errors.AsType[*config.MissingKeyError](err); !ok || missing.Env != "OPENAI_API_KEY" {
		t.Errorf("got %v", err)
	}
	if got := strings.Join(c.KeyNames(), " "); got != "ANTHROPIC_API_KEY AZURE_OPENAI_API_KEY DEEPSEEK_API_KEY GEMINI_API_KEY GROQ_API_KEY MISTRAL_API_KEY NEXUS3_API_KEY OPENAI_API_KEY OPENROUTER_API_KEY ROUTER_KEY" {
		t.Errorf("got %s", got)
	}
}

func TestLaterFilesOverride(t *testing.T) {
	home, cwd := t.TempDir(), t.TempDir()
	write(t, filepath.Join(home, "config.json"), `{"default_model":"local/one","providers":{"local":{"type":"openai","auth_method":"none"}}}`)
	project := write(t, filepath.Join(cwd, ".nexus3", "config.json"), `{"default_model":"local/two"}`)
	extra := write(t, filepath.Join(cwd, "extra.json"), `{"default_model":"local/three"}`)
	for _, tt := range []struct {
		extra []string
		want  string
	}{{nil, "two"}, {[]string{extra}, "three"}} {
		c, err := config.Load([]string{"NEXUS_HOME=" + home}, cwd, tt.extra...)
		if err != nil {
			t.Fatal(err)
		}
		if choice, err := c.Models.Choose(config.Wish{}); err != nil || choice.Model != tt.want {
			t.Errorf("got %s, %v, want %s", choice.Model, err, tt.want)
		}
		if c.Files[1] != project {
			t.Errorf("files %v", c.Files)
		}
	}
	if os.Geteuid() == 0 { // only root can give files away
		if err := os.Chown(project, 12345, -1); err != nil {
			t.Fatal(err)
		}
		_, err := config.Load([]string{"NEXUS_HOME=" + home}, cwd)
		if e, ok := errors.AsType[*config.FileError](err); !ok || !e.Project || e.Path != project || !errors.Is(err, safefile.ErrForeign) {
			t.Errorf("a project's file that belongs to another user: %v", err)
		}
		if err := os.Chown(project, 0, -1); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := config.Load([]string{"NEXUS_HOME=" + home}, cwd, filepath.Join(cwd, "none.json")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing file of the user's own: %v", err)
	}
}

func TestFaultsAreNamed(t *testing.T) {
	tests := []struct {
		name, text, want string
	}{
		{"an unknown member", `{"provders":{}}`, `member "provders" is not known`},
		{"an unknown member inside", `{"providers":{"p":{"type":"openai","api_key":"sk-secret"}}}`, `member "providers.p.api_key" is not known`},
		{"a missing type", `{"providers":{"p":{}}}`, `member "providers.p.type" is missing`},
		{"an unknown type", `{"providers":{"p":{"type":"x"}}}`, `member "providers.p.type" is "x", want one of openai, openai-responses, anthropic, offline`},
		{"an unknown auth method", `{"providers":{"p":{"type":"openai","auth_method":"x"}}}`, `member "providers.p.auth_method" is "x"`},
		{"a base_url without a host", `{"providers":{"p":{"type":"openai","base_url":"http://"}}}`, `member "providers.p.base_url" is no http or https URL`},
		{"a base_url of another scheme", `{"providers":{"p":{"type":"openai","base_url":"ftp://x"}}}`, `member "providers.p.base_url" is no http or https URL`},
		{"a name with a slash", `{"providers":{"a/b":{"type":"openai"}}}`, "is no name"},
		{"a model without an id", `{"providers":{"p":{"type":"openai","models":[{"id":""}]}}}`, `member "providers.p.models[0].id" is empty`},
		{"a model's id that is too long", `{"providers":{"p":{"type":"openai","models":[{"id":"` + strings.Repeat("m", 257) + `"}]}}}`, `member "providers.p.models[0].id" cannot be chosen: the name is 257 bytes long`},
		{"a model's name with a line break", `{"providers":{"p":{"type":"openai","models":[{"id":"m","name":"a\nb"}]}}}`, `member "providers.p.models[0].name" cannot be shown: the name has a control character`},
		{"a negative limit", `{"limits":{"tokens":-1}}`, `member "limits.tokens" must be`},
		{"an unknown limit", `{"limits":{"dollars":1}}`, `member "limits.dollars" is not known`},
		{"a provider's name that is too long", `{"providers":{"` + strings.Repeat("p", 257) + `":{"type":"openai"}}}`, "the name of a provider: the name is 257 bytes long"},
		{"an unknown way to think", `{"providers":{"p":{"type":"anthropic","thinking":"hard"}}}`, `member "providers.p.thinking" is "hard", want one of adaptive, enabled, disabled`},
		{"thinking where there is none", `{"providers":{"p":{"type":"openai","thinking":"enabled"}}}`, `for type "anthropic" alone`},
		{"a negative price", `{"providers":{"p":{"type":"openai","models":[{"id":"a","price":{"input":-1,"output":1}}]}}}`, `member "providers.p.models[0].price" is not from 0 to 1000000 dollars for a million tokens`},
		{"a negative bound", `{"providers":{"p":{"type":"anthropic","max_tokens":-1}}}`, `member "providers.p.max_tokens" is less than 0`},
		{"a preset without a tool that is none", `{"presets":{"p":{"preset":"trusted","disabled_tools":["Shell"]}}}`, `member "presets.p.disabled_tools[0]" is "Shell", which is no tool; did you mean "shell"?`},
		{"days without end", `{"sessions":{"keep_unnamed_days":36501}}`, `member "sessions.keep_unnamed_days" is more than 36500`},
		{"logs that are kept without end", `{"logs":{"keep_days":36501}}`, `member "logs.keep_days" is more than 36500`},
		{"a relative directory of logs", `{"logs":{"dir":"logs"}}`, `member "logs.dir" is "logs", want an absolute path`},
		{"a tool without time", `{"tools":{"timeout_s":0}}`, `member "tools.timeout_s" is not above 0 and at most 86400`},
		{"a tool of more than a day", `{"tools":{"timeout_s":86401}}`, `member "tools.timeout_s" is not above 0 and at most 86400`},
		{"an address that is none", `{"tools":{"fetch_addresses":["10.0.0.0/8","host"]}}`, `member "tools.fetch_addresses[1]" is "host", want an address or a network of them, as 10.1.0.0/16`},
		{"a default model's name that is too long", `{"default_model":"local/` + strings.Repeat("m", 257) + `","providers":{"local":{"type":"openai","auth_method":"none"}}}`, `member "default_model" cannot be chosen: model: the name is 257 bytes long`},
		{"no JSON", `{`, "config.json:1:2: "},
		{"a misspelt member", "{\n  \"provders\": {}\n}", `config.json:2:3: member "provders" is not known; did you mean "providers"?`},
		{"a misspelt word of a member", `{"modell":"offline"}`, `config.json:1:2: member "modell" is not known; did you mean "default_model"?`},
		{"a wrong type, deep inside", "{\"providers\":{\n\t\"p\":{\"type\":\"openai\",\n\t\t\"models\":[{\"id\":\"a\"}, {\"id\":1}]}}}", `config.json:3:26: member "providers.p.models[1].id" must be a string, is the number 1`},
		{"a member that is missing", "{\"providers\":\n {\"p\": {}}}", `config.json:2:3: member "providers.p.type" is missing`},
		{"a member twice", "{\"limits\":{},\n\"limits\":{}}", `config.json:2:1: duplicate member`},
		{"something behind the end", "{}\n\n {}", `config.json:3:2: `},
		{"not an object", ` []`, `config.json:1:2: must be an object`},
		{"a model twice", `{"providers":{"p":{"type":"openai","models":[{"id":"a"},{"id":"a"}]}}}`, `member "providers.p.models[1].id" is "a", which the list has already`},
		{"a key in the place of its variable", `{"providers":{"p":{"type":"openai","api_key_env":"sk-secret"}}}`, `member "providers.p.api_key_env" is no name of an environment variable`},
		{"an unknown default provider", `{"default_provider":"opnai"}`, `member "default_provider" is "opnai", and there is no such provider, want one of anthropic, azure, deepseek, gemini, groq, mistral, offline, ollama, openai, openrouter; did you mean "openai"?`},
		{"an unknown default model", vendors + `,"default_provider":"router","default_model":"smal"}`, `member "default_model" is "smal", which no list of models has, and the models of "router" are maker/big, small: choose a model of another provider as PROVIDER/MODEL; did you mean "small"?`},
		{"a default model of nobody", `{"default_model":"gpt"}`, `member "default_model" is "gpt", which no list of models has, and the models of "offline" are offline`},
		{"a default model of an unknown provider", `{"default_model":"nosuch/gpt"}`, `member "default_model" is "nosuch/gpt", and there is no provider "nosuch", want one of anthropic, azure, deepseek, gemini, groq, mistral, offline, ollama, openai, openrouter`},
		{"a default model of a provider that is nearly one", `{"default_model":"opnai/gpt-4o"}`, `member "default_model" is "opnai/gpt-4o", and there is no provider "opnai", want one of anthropic, azure, deepseek, gemini, groq, mistral, offline, ollama, openai, openrouter; did you mean "openai/gpt-4o"?`},
		{"an unknown provider of a profile", `{"profiles":{"p":{"provider":"x"}}}`, `member "profiles.p.provider" is "x", and there is no such provider`},
		{"an unknown model of a profile", vendors + `,"profiles":{"p":{"provider":"router","model":"x"}}}`, `member "profiles.p.model" is "x", which no list of models has, and the models of "router" are maker/big, small`},
		{"an unknown preset of a profile", `{"profiles":{"p":{"preset":"trustd"}}}`, `member "profiles.p.preset" is "trustd", and there is no such preset, want one of yolo, trusted, sandboxed; did you mean "trusted"?`},
		{"a relative path of a preset", `{"presets":{"p":{"preset":"trusted","write_paths":["/a","b"]}}}`, `member "presets.p.write_paths[1]" is "b", want an absolute path`},
		{"a preset that may write everything", `{"presets":{"p":{"preset":"trusted","write_paths":["/a","/b/.."]}}}`, `member "presets.p.write_paths[1]" is every file of the machine: name the directories that are meant`},
		{"an empty mode of a preset", `{"presets":{"p":{"preset":"trusted","tools":{"shell":{"mode":""}}}}}`, `member "presets.p.tools.shell.mode" is "", want allow, ask or deny`},
		{"an unknown mode of a preset", `{"presets":{"p":{"preset":"trusted","tools":{"shell":{"mode":"never"}}}}}`, `member "presets.p.tools.shell.mode" is "never", want allow, ask or deny`},
		{"an unknown model of a role", vendors + `,"roles":{"planner":{"agent_id":"a","model":"router/x"}}}`, `member "roles.planner.model" is "router/x"`},
		{"yolo of a role, not allowed", `{"roles":{"planner":{"preset":"yolo"}}}`, `member "roles.planner.preset" is yolo`},
		{"yolo of a role by another name", `{"presets":{"root":{"preset":"yolo"}},"server":{"allow_yolo":true},"roles":{"planner":{"preset":"root"}}}`, `member "roles.planner.preset" is yolo`},
		{"an unknown preset of a role", `{"roles":{"planner":{"agent_id":"a","preset":"x"}}}`, `member "roles.planner.preset" is "x"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			home := t.TempDir()
			write(t, filepath.Join(home, "config.json"), tt.text)
			_, err := config.Load([]string{"NEXUS_HOME=" + home}, home)
			if _, ok := errors.AsType[*config.FileError](err); !ok || !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("got %v, want …%s…", err, tt.want)
			}
			if strings.Contains(err.Error(), "sk-secret") {
				t.Error("the error tells a key")
			}
		})
	}
}

// A repository that somebody else wrote must not be able to have a person's
// key sent to a server of its own.
func TestProjectCannotTakeKeys(t *testing.T) {
	tests := []struct {
		name, text string
		refused    bool
	}{
		{"a built-in provider moved elsewhere", `{"providers":{"openai":{"type":"openai","base_url":"https://elsewhere.example","api_key_env":"OPENAI_API_KEY"}}}`, true},
		{"a new provider with a key of the user's", `{"providers":{"p":{"type":"openai","api_key_env":"OTHER_KEY","auth_method":"api-key"}}}`, true},
		{"a provider without a key", `{"providers":{"p":{"type":"openai","base_url":"http://127.0.0.1:11434/v1","auth_method":"none"}}}`, false},
		{"on this machine, by name and by IPv6", `{"providers":{"p":{"type":"openai","base_url":"http://localhost/v1","auth_method":"none"},"q":{"type":"anthropic","base_url":"http://[::1]:1","auth_method":"none"}}}`, false},
		{"elsewhere, without a key", `{"providers":{"p":{"type":"openai","base_url":"https://elsewhere.example/v1","auth_method":"none"}}}`, true},
		{"elsewhere, by a name like ours", `{"providers":{"p":{"type":"openai","base_url":"http://127.0.0.1.elsewhere.example/v1","auth_method":"none"}}}`, true},
		{"elsewhere, behind a user", `{"providers":{"p":{"type":"openai","base_url":"http://localhost@elsewhere.example/v1","auth_method":"none"}}}`, true},
		{"at its vendor's, without a key", `{"providers":{"p":{"type":"openai","auth_method":"none"}}}`, true},
		{"in the place of a person's own", `{"providers":{"openai":{"type":"openai","base_url":"http://127.0.0.1:1","auth_method":"none"}}}`, true},
		{"the offline one", `{"providers":{"p":{"type":"offline"}}}`, false},
		{"a choice of model", `{"default_model":"openai/some"}`, false},
		{"limits", `{"limits":{"tokens":0}}`, true},
		{"how long sessions are kept", `{"sessions":{"keep_unnamed_days":1}}`, true},
		{"where sessions are logged", `{"logs":{"sessions":true,"dir":"/tmp"}}`, true},
		{"how long tools may take", `{"tools":{"timeout_s":1}}`, true},
		{"what pages may be fetched", `{"tools":{"fetch_addresses":["127.0.0.1"]}}`, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			cwd := t.TempDir()
			write(t, filepath.Join(cwd, ".nexus3", "config.json"), tt.text)
			_, err := config.Load([]string{"NEXUS_HOME=" + t.TempDir()}, cwd)
			if refused := err != nil; refused != tt.refused {
				t.Fatalf("got %v, want refused=%t", err, tt.refused)
			}
			if tt.refused && !strings.Contains(err.Error(), "a project's file may not decide") && !strings.Contains(err.Error(), "to say: move it") &&
				!strings.Contains(err.Error(), "is not the project's to replace") {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestLimits(t *testing.T) {
	if got := load(t, "").Limits; got != (config.Limits{}) {
		t.Errorf("none: got %+v", got)
	}
	got := load(t, `{"limits":{"tokens":1000,"tokens_per_minute":20}}`).Limits
	if want := (config.Limits{Tokens: 1000, TokensPerMinute: 20}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// A server's broker knows the providers of the home alone.
func TestFromProject(t *testing.T) {
	home, cwd := t.TempDir(), t.TempDir()
	write(t, filepath.Join(home, "config.json"), vendors+"}")
	write(t, filepath.Join(cwd, ".nexus3", "config.json"), `{"providers":{"mine":{"type":"openai","base_url":"http://127.0.0.1:1/v1","auth_method":"none"},"new":{"type":"openai","base_url":"http://localhost:1/v1","auth_method":"none"}}}`)
	extra := write(t, filepath.Join(cwd, "extra.json"), `{"providers":{"new":{"type":"openai","auth_method":"none"}}}`)
	for _, tt := range []struct {
		extra []string
		want  map[string]bool
	}{
		{nil, map[string]bool{"router": false, "local": false, "mine": true, "new": true, "openai": false, "none": false}},
		{[]string{extra}, map[string]bool{"mine": true, "new": false}},
	} {
		c, err := config.Load([]string{"NEXUS_HOME=" + home}, cwd, tt.extra...)
		if err != nil {
			t.Fatal(err)
		}
		for name, want := range tt.want {
			if got := c.FromProject(name); got != want {
				t.Errorf("%s with %v: got %t", name, tt.extra, got)
			}
		}
	}
}

// A key whose provider another file replaces is still a key.
func TestKeyNamesOutliveTheirProvider(t *testing.T) {
	extra := write(t, filepath.Join(t.TempDir(), "extra.json"), `{"providers":{"openai":{"type":"openai","auth_method":"none"}}}`)
	c, err := config.Load([]string{"NEXUS_HOME=" + t.TempDir()}, t.TempDir(), extra)
	if err != nil {
		t.Fatal(err)
	}
	if got := c.KeyNames(); !slices.Contains(got, "OPENAI_API_KEY") {
		t.Errorf("got %v, want OPENAI_API_KEY among them", got)
	}
}

// Whatever a file says, it is refused as a whole with the file's name, or all
// that it names can be used.
func FuzzLoad(f *testing.F) {
	f.Add([]byte(vendors+`,"default_model":"local/llama","limits":{"tokens":5},"profiles":{"p":{"model":"small"}}}`), true)
	f.Add([]byte(`{"providers":{"openai":{"type":"openai"}}}`), false)
	f.Add([]byte(`{"$schema":"x",} // as people write it`), false)
	f.Add([]byte(`{"$schema":"x","presets":{"p":{"preset":"trusted","tools":{"shell":{"mode":"ask"}}}},"roles":{"planner":{"agent_id":"a","preset":"p"}},"server":{"allowed_origins":["http://a"]},"sessions":{"keep_unnamed_days":null},"providers":{"p":{"type":"openai","auth_method":""}}}`), true)
	f.Fuzz(func(t *testing.T, text []byte, personal bool) {
		home, cwd := t.TempDir(), t.TempDir()
		path := filepath.Join(home, "config.json")
		if !personal {
			path = filepath.Join(cwd, ".nexus3", "config.json")
		}
		write(t, path, string(text))
		c, err := config.Load([]string{"NEXUS_HOME=" + home}, cwd)
		if err != nil {
			if e, ok := errors.AsType[*config.FileError](err); !ok || e.Path != path {
				t.Fatalf("got %v", err)
			}
			return
		}
		checkSchema(t, text)
		for _, name := range c.Models.Names() {
			p, err := c.Models.Provider(name)
			if err != nil {
				t.Fatal(err)
			}
			if c.FromProject(name) && p.Type != "offline" && p.AuthMethod != "none" {
				t.Fatalf("a project's provider %q would be sent a key", name)
			}
			if choice, err := c.Models.Choose(config.Wish{Provider: name, Model: "m"}); err == nil && choice.Name != name {
				t.Fatalf("asked for %q, got %q", name, choice.Name)
			}
		}
	})
}

func TestRoles(t *testing.T) {
	c := load(t, `{"roles":{"executor":{"agent_id":"maker","preset":"trusted"}}}`)
	if got := c.Roles["executor"]; got.AgentID != "maker" || got.Preset != "trusted" {
		t.Errorf("got %+v", got)
	}
	for text, want := range map[string]string{
		`{"roles":{"painter":{"agent_id":"a"}}}`: `"roles.painter" is not known, want planner or executor`,
		`{"roles":{"planer":{}}}`:                `"roles.planer" is not known, want planner or executor; did you mean "planner"?`,
	} {
		home := t.TempDir()
		write(t, filepath.Join(home, "config.json"), text)
		if _, err := config.Load([]string{"NEXUS_HOME=" + home}, ""); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", text, err, want)
		}
	}
	project := t.TempDir()
	write(t, filepath.Join(project, ".nexus3", "config.json"), `{"roles":{"planner":{"agent_id":"a"}}}`)
	if _, err := config.Load([]string{"NEXUS_HOME=" + t.TempDir()}, project); err == nil || !strings.Contains(err.Error(), "is the server's to say") {
		t.Errorf("a project's roles: %v", err)
	}
}

func TestServer(t *testing.T) {
	got := load(t, `{"server":{"allowed_origins":["https://app.example","http://127.0.0.1:3000"],"requests_per_minute":60,"require_signatures":true,"allow_yolo":true,"spares":0}}`).Server
	want := config.Server{AllowedOrigins: []string{"https://app.example", "http://127.0.0.1:3000"}, RequestsPerMinute: 60, RequireSignatures: true, AllowYolo: true, Spares: new(uint64)}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	home := t.TempDir()
	write(t, filepath.Join(home, "config.json"), `{"server":{"spares":17}}`)
	if _, err := config.Load([]string{"NEXUS_HOME=" + home}, ""); err == nil || !strings.Contains(err.Error(), `"server.spares" is more than 16`) {
		t.Errorf("17 spares: %v", err)
	}
	for _, origin := range []string{
		"", "*", "null", "app.example", "https://app.example/", "HTTPS://app.example", "https://App.example", "https://u@app.example", "https://app.example?x",
		"http://*", "https://*.example", "http://app.example:", "http://app.example:80", "https://app.example:443", "http://a b",
	} {
		home := t.TempDir()
		write(t, filepath.Join(home, "config.json"), `{"server":{"allowed_origins":["`+origin+`"]}}`)
		if _, err := config.Load([]string{"NEXUS_HOME=" + home}, ""); err == nil || !strings.Contains(err.Error(), "server.allowed_origins[0]") {
			t.Errorf("%q: %v", origin, err)
		}
	}
	project := t.TempDir()
	write(t, filepath.Join(project, ".nexus3", "config.json"), `{"server":{"allowed_origins":["https://evil.example"]}}`)
	if _, err := config.Load([]string{"NEXUS_HOME=" + t.TempDir()}, project); err == nil || !strings.Contains(err.Error(), "is the server's to say") {
		t.Errorf("a project's origins: %v", err)
	}
}

// A key that is missing keeps nobody else from working, so it is told and not refused.
func TestWarnings(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		env        []string
		want       []string
	}{
		{name: "nothing configured"},
		{name: "a provider of the file", text: vendors + "}", want: []string{`provider "router" needs a key: set the environment variable ROUTER_KEY`}},
		{name: "its key is there", text: vendors + "}", env: []string{"ROUTER_KEY=secret"}},
		{name: "a built-in one that is the default", text: `{"default_model":"openai/x"}`, want: []string{`provider "openai" needs a key: set the environment variable OPENAI_API_KEY`}},
		{
			name: "a built-in one of a role and of a profile", text: `{"roles":{"planner":{"agent_id":"a","provider":"anthropic"}},"profiles":{"p":{"model":"openai/x"}}}`,
			want: []string{`provider "anthropic" needs a key: set the environment variable ANTHROPIC_API_KEY`, `provider "openai" needs a key: set the environment variable OPENAI_API_KEY`},
		},
		{
			name: "a default provider without a model", text: `{"default_provider":"openai"}`, env: []string{"OPENAI_API_KEY=secret"},
			want: []string{`an agent that names no model cannot start: provider "openai" has no default model: choose a model, or set default_model in config.json`},
		},
		{
			name: "a budget, and a model that costs nothing", text: `{"default_model":"ollama/x","limits":{"cost_usd":1}}`, // what runs there costs nothing
		},
		{
			name: "a budget without the price of the default model", text: vendors + `,"default_model":"local/x","limits":{"cost_usd":1}}`, env: []string{"ROUTER_KEY=secret"},
			want: []string{`limits.cost_usd keeps agents from the default model, as the price of "x" of provider "local" is not known: add it to the models of this provider`},
		},
		{name: "no variable", text: `{"$schema":"config.schema.json","providers":{"p":{"type":"openai"}}}`, want: []string{`provider "p" needs a key: name its environment variable as api_key_env in config.json, or set auth_method to "none"`}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, load(t, tt.text, tt.env...).Warnings()); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

// A price is that of a model that the configuration lists; the offline model costs nothing.
func TestPrice(t *testing.T) {
	c := load(t, `{"providers":{"p":{"type":"openai","models":[{"id":"a","price":{"input":3,"output":15,"cache_read":0.3}},{"id":"b"}]}}}`)
	tenth := 0.3
	for name, want := range map[string]*protocol.Price{
		"p/a": {Input: 3, Output: 15, CacheRead: &tenth}, "p/b": nil, "p/c": nil, "q/a": nil, "offline/offline": {}, "/": nil,
	} {
		service, model, _ := strings.Cut(name, "/")
		got, ok := c.Models.Price(service, model)
		if diff := cmp.Diff(want, &got); ok != (want != nil) || ok && diff != "" {
			t.Errorf("%s: known %v (-want +got):\n%s", name, ok, diff)
		}
	}
}
