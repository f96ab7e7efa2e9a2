package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/sessions"
	"nexus.internal/cmd/internal/config"
	"nexus.internal/protocol"
	"nexus.internal/supervisor"
	"nexus.internal/supervisor/stdio"
)

// childFlags knows the flags of nexus-child. It is not changed after its making and safe for
// concurrent use.
type childFlags struct {
	child    string // absolute path of nexus-child
	personal string // absolute path of the copy of config.json that children read
	config   settingsSource
	sessions *sessions.Catalogue
	// durability and scenario are flags of the server that go to every child;
	// "" passes none.
	durability string
	scenario   string
	approval   time.Duration // that a permission request may take
	logLevel   string        // of every child; "" is the default
	private    []string      // files and directories of the server that are none of an agent's
}

// Command implements [stdio.CommandLine]. The first process begins the session of the agent's
// name, or continues it; what s asks for overrides what the session saved. Later ones insist
// on the session and take everything from it, so that what was changed meanwhile (set_model)
// holds.
func (c *childFlags) Command(s supervisor.Spec, again bool) (stdio.Command, error) {
	ceiling, permissions, err := permissionFlags(s)
	if err != nil {
		return stdio.Command{}, err
	}
	name, patience, depth := "session", "", ""
	if again {
		name = "continue"
	}
	if s.Labels.Approvals == api.ApprovalsAsk {
		patience = c.approval.String()
	}
	if s.Labels.Depth > 0 {
		depth = fmt.Sprint(s.Labels.Depth)
	}
	own, passed := ownVariables(s.Env)
	become := protocol.Become{Dir: s.Cwd}
	become.Args = slices.Concat([]string{"--" + name + "=" + s.ID, "--session-dir=" + c.sessions.Dir(s.ID), "--session-updates", "--host-calls"}, flags(
		flag{"durability", c.durability},
		flag{"scenario", c.scenario},
		flag{"personal-config", c.personal},
		flag{"log-level", c.logLevel},
		flag{"parent-agent", s.Labels.Parent},
		flag{"approvals", s.Labels.Approvals},
		flag{"approval-timeout", patience},
		ceiling,
		flag{"depth", depth},
		flag{"model-socket", s.ModelSocket},
		passed,
	))
	for _, path := range c.private {
		become.Args = append(become.Args, flags(flag{"private-path", path})...)
	}
	if !again {
		if become.System = s.SystemPrompt; become.System != nil { // an empty one asks for none
			become.Args = append(become.Args, "--system-env") // other users see command lines
		}
		settings, err := settingsFlag(s.Settings)
		if err != nil {
			return stdio.Command{}, err
		}
		program := flag{}
		if s.Program != nil && s.Fresh { // a saved session says it itself
			text, err := json.Marshal(s.Program)
			if err != nil {
				return stdio.Command{}, fmt.Errorf("encode the program: %w", err)
			}
			program = flag{"program", string(text)}
		}
		become.Args = append(become.Args, flags(
			program,
			permissions,
			settings,
			flag{"cwd", s.Cwd},
			flag{"cwd-lost", s.Labels.CwdLost},
			flag{"model", s.Model},
			flag{"provider", s.Provider},
		)...)
	}
	return stdio.Command{Program: c.child, Env: c.config.settings().childEnv, Own: own, Become: become}, nil
}

// flag is one of a child's command line.
type flag struct{ name, value string }

// flags are those that have a value, as a command line has them.
func flags(given ...flag) (args []string) {
	for _, f := range given {
		if f.value != "" {
			args = append(args, "--"+f.name+"="+f.value)
		}
	}
	return args
}

// ownVariables are an agent's own, and the flag by which its programs get these.
func ownVariables(own map[string]string) (env []string, passed flag) {
	names := slices.Sorted(maps.Keys(own))
	for _, name := range names {
		env = append(env, name+"="+own[name])
	}
	return env, flag{"pass-env", strings.Join(names, ",")}
}

// permissionFlags are what the agent's permissions cannot exceed, and what is asked for: a
// preset alone, or the rules beside it. A parent whose session was saved with names that are
// no tools may have them in its own; the flag takes none.
func permissionFlags(s supervisor.Spec) (ceiling, asked flag, err error) {
	asked = flag{"preset", s.Permissions.Preset}
	if s.Permissions.DisabledTools != nil || s.Permissions.WritePaths != nil || s.Permissions.Network != nil {
		asked, err = encode("permissions", s.Permissions)
	}
	if s.Ceiling != nil && err == nil {
		ceiling, err = encode("ceiling", s.Ceiling.KnownTools())
	}
	return ceiling, asked, err
}

// settingsFlag is how turns run, as far as it was asked for.
func settingsFlag(s protocol.TurnSettings) (flag, error) {
	if s == (protocol.TurnSettings{}) {
		return flag{}, nil
	}
	text, err := json.Marshal(s)
	if err != nil {
		return flag{}, fmt.Errorf("encode the settings: %w", err)
	}
	return flag{"settings", string(text)}, nil
}

func encode(name string, p protocol.Permissions) (flag, error) {
	text, err := json.Marshal(p, json.Deterministic(true))
	if err != nil {
		return flag{}, fmt.Errorf("encode the %s: %w", name, err)
	}
	return flag{name, string(text)}, nil
}

// childEnv is what a child may see of the server's environment: where things
// are, which language to speak, and how to reach the network. Keys are the broker's
// business.
func childEnv(environ []string, cfg *config.Config) []string {
	keep := map[string]bool{
		"PATH": true, "HOME": true, "USER": true, "LOGNAME": true, "TMPDIR": true, "TZ": true, "LANG": true, "LANGUAGE": true,
		"HTTP_PROXY": true, "HTTPS_PROXY": true, "NO_PROXY": true, "http_proxy": true, "https_proxy": true, "no_proxy": true,
		"SSL_CERT_FILE": true, "SSL_CERT_DIR": true, config.AzureEndpoint: true,
	}
	for _, name := range cfg.KeyNames() { // whatever somebody called it
		keep[name] = false
	}
	env := []string{"NEXUS_HOME=" + string(cfg.Home), "GOMAXPROCS=1"} // see tool.Processors
	for _, pair := range environ {
		name, _, _ := strings.Cut(pair, "=")
		if kept, known := keep[name]; kept || !known && strings.HasPrefix(name, "LC_") {
			env = append(env, pair)
		}
	}
	return env
}
