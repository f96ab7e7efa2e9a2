package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/pflag"

	"nexus.internal/child"
	"nexus.internal/child/journal"
	"nexus.internal/child/parent"
	"nexus.internal/cmd/internal/badflag"
	"nexus.internal/cmd/internal/config"
	"nexus.internal/cmd/internal/logsink"
	"nexus.internal/protocol"
	"nexus.internal/protocol/strict"
	"nexus.internal/protocol/suggest"
	"nexus.internal/protocol/transcript"
)

const usage = `nexus-child is one agent on stdin and stdout, a JSON object on each line.

Usage: nexus-child [rpc] [flags]
       nexus-child schema  (prints the JSON Schema of the lines)
       nexus-child check   (reads a request on stdin; the server checks code by it)
       nexus-child spare   (waits until the server makes it an agent)
       nexus-child version (the same as --version)

  printf '{"type":"prompt","id":"1","message":"hello"}\n' | nexus-child

Flags:
%s`

// flags are what the command line says. "" means that it does not say, but for
// system, which may be empty: saysSystem tells.
type flags struct {
	session, resume, sessionDir string
	system, systemFile          string
	systemEnv                   bool
	model, provider, profile    string
	cwd, preset, parent         string
	depth                       uint64 // agents above this one
	noSession                   bool
	permissionsJSON             string
	ceilingJSON                 string
	permissions, ceiling        *protocol.Permissions // nil if not given
	scenario, modelSocket       string
	configs                     []string
	personal                    string
	private                     []string
	ascii, updates, version     bool
	passEnv                     []string
	hostCalls, toolOutput       bool
	approvals, cwdLost          string
	approvalTimeout             time.Duration
	durability                  string
	maxIterations               int
	compactAt                   int // percent
	maxMessages                 int
	toolTimeout                 float64 // seconds
	settingsJSON                string
	programJSON                 string
	program                     *protocol.AgentProgram // nil if not given
	settings                    protocol.TurnSettings  // with those of the three flags above
	logLevel                    logsink.Level
	logFormat                   logsink.Format

	set *pflag.FlagSet
}

// parse reads the command line. pflag.ErrHelp asks for help.
func parse(args []string) (*flags, error) {
	f := &flags{}
	set := pflag.NewFlagSet("nexus-child", pflag.ContinueOnError)
	f.set = set
	set.SetOutput(io.Discard)
	set.SortFlags = false
	set.Usage = func() {}
	set.StringVar(&f.session, "session", "", "begin the session `NAME`, or continue it if it exists")
	set.StringVar(&f.resume, "continue", "", "continue the saved session of that name or `ID`; it must exist")
	set.StringVar(&f.sessionDir, "session-dir", "", "keep sessions in `DIR` (default: sessions in the home)")
	set.BoolVar(&f.noSession, "no-session", false, "save nothing (default: save the conversation, an unnamed one under its session id)")
	set.StringVar(&f.system, "system", "", "system prompt `TEXT`")
	set.StringVar(&f.systemFile, "system-file", "", "system prompt in `FILE`")
	set.BoolVar(&f.systemEnv, "system-env", false, "system prompt in $"+protocol.SystemVariable+", as other users can see command lines")
	set.StringVar(&f.model, "model", "", "model `ID` or PROVIDER/ID")
	set.StringVar(&f.provider, "provider", "", "provider `NAME`")
	set.StringVar(&f.profile, "profile", "", "profile `NAME` of config.json")
	set.StringVar(&f.cwd, "cwd", "", "working directory `DIR` (default: the current one)")
	set.StringVar(&f.preset, "preset", "", "permission preset `NAME`: yolo, trusted, sandboxed or one of config.json (default trusted)")
	set.StringVar(&f.permissionsJSON, "permissions", "", "permissions as `JSON`: {\"preset\":…,\"disabled_tools\",\"allowed_paths\",\"write_paths\",\"blocked_paths\",\"network\",\"tools\"}")
	set.StringVar(&f.ceilingJSON, "ceiling", "", "bound of the permissions, in the same `JSON`; a saved one can only become tighter")
	set.BoolVar(&f.ascii, "ascii", false, "write non-ASCII characters as escapes")
	set.StringVar(&f.durability, "durability", "turn", "`WHEN` a turn is synced: turn, before it ends; os, when the system decides")
	set.BoolVar(&f.updates, "session-updates", false, "emit session_update events, and retry, compaction_start and compaction_end in turns")
	set.BoolVar(&f.toolOutput, "tool-output", false, "emit the output of running tools, as toolcall_output_delta")
	set.BoolVar(&f.hostCalls, "host-calls", false, "let the agent ask the parent to create, message and end other agents")
	set.StringSliceVar(&f.passEnv, "pass-env", nil, "further variables of the environment for programs, as `A,B`")
	set.StringVar(&f.approvals, "approvals", "deny", "how calls that need an approval are decided, `MODE`: ask the parent, deny or allow")
	set.StringVar(&f.cwdLost, "cwd-lost", "", "what becomes of the agent where its directory is lost with a machine of a cluster, `MODE`: wait or fresh (default: the saved one, else wait)")
	set.DurationVar(&f.approvalTimeout, "approval-timeout", parent.DefaultDeadline, "how long an approval is waited for, `DURATION`")
	set.IntVar(&f.maxIterations, "max-iterations", child.DefaultMaxIterations, "model calls of one turn at most, `N`")
	set.IntVar(&f.compactAt, "compact-at", child.DefaultCompactAt, "summarise old messages at `PERCENT` of the context; 0: never")
	set.IntVar(&f.maxMessages, "max-messages", child.DefaultMaxMessages, "messages of one request at most, `N`")
	set.Float64Var(&f.toolTimeout, "tool-timeout", 0, "`SECONDS` that one tool call may take, whatever time it names (default: tools.timeout_s of config.json; else that time, at least 300)")
	set.StringVar(&f.settingsJSON, "settings", "", "how turns run, as `JSON`: {\"max_iterations\",\"max_messages\",\"compact_at\",\"tool_timeout_s\",\"temperature\",\"max_output_tokens\",\"reasoning_effort\",\"fallback_model\"}; the flags above go before it")
	set.StringVar(&f.programJSON, "program", "", "run as a program of another make, as `JSON`: {\"kind\",\"protocol\",\"command\",\"home\",\"sandbox\",\"models\"}; a saved session has its own")
	set.StringVar(&f.scenario, "scenario", "", "let the offline provider play the scenario in `FILE`")
	set.StringVar(&f.modelSocket, "model-socket", "", "reach models through the unix socket `PATH` of a broker that has the keys")
	set.StringVar(&f.parent, "parent-agent", "", "`ID` of the agent that created this one")
	set.Uint64Var(&f.depth, "depth", 0, "number `N` of agents above this one: its creator, the creator of that, and so on")
	set.StringVar(&f.personal, "personal-config", "", "read `FILE` as the personal configuration instead of config.json in the home, and again when it was replaced")
	set.StringArrayVar(&f.private, "private-path", nil, "file or directory `PATH` of nexus that is out of bounds for the agent, as the home is; may be repeated")
	set.StringArrayVar(&f.configs, "config", nil, "read this configuration `FILE` too; may be repeated")
	set.Var(&f.logLevel, "log-level", "lowest `LEVEL` of lines in the log on stderr: debug, info, warn or error")
	set.Var(&f.logFormat, "log-format", "`FORMAT` of the log: auto (text on a terminal, else json), text or json")
	set.BoolVar(&f.version, "version", false, "print the version and exit")
	if len(args) > 0 && args[0] == "rpc" {
		args = args[1:]
	}
	switch err := set.Parse(args); {
	case errors.Is(err, pflag.ErrHelp):
		if set.NArg() > 0 {
			err = unexpected(set.Arg(0))
		}
		return f, err
	case err != nil:
		return f, errors.New(badflag.Problem(err, set))
	}
	if err := f.check(); err != nil {
		return f, err
	}
	return f, f.readSystemEnv()
}

// readSystemEnv takes the system prompt from the environment. It may be empty.
func (f *flags) readSystemEnv() error {
	if !f.systemEnv {
		return nil
	}
	text, ok := os.LookupEnv(protocol.SystemVariable)
	if !ok {
		return fmt.Errorf("--system-env: $%s is not set", protocol.SystemVariable)
	}
	if !utf8.ValidString(text) {
		return fmt.Errorf("--system-env: $%s is not UTF-8", protocol.SystemVariable)
	}
	f.system = text
	return nil
}

// check finds what the parser lets through.
func (f *flags) check() error {
	if problem := badflag.Text(f.set, "system"); problem != "" {
		return errors.New(problem)
	}
	switch {
	case f.set.NArg() > 0:
		return unexpected(f.set.Arg(0))
	case f.preset != "" && f.permissionsJSON != "":
		return errors.New("--preset and --permissions exclude each other")
	case f.session != "" && f.resume != "":
		return errors.New("--session and --continue exclude each other")
	case f.noSession && (f.session != "" || f.resume != "" || f.sessionDir != ""):
		return errors.New("--no-session excludes --session, --continue and --session-dir")
	case f.set.Changed("system") && f.systemFile != "":
		return errors.New("--system and --system-file exclude each other")
	case f.systemEnv && (f.set.Changed("system") || f.systemFile != ""):
		return errors.New("--system-env excludes --system and --system-file")
	case f.durability != "turn" && f.durability != "os":
		return fmt.Errorf(`--durability is %q, want "turn" or "os"`, f.durability)
	case f.approvals != "ask" && f.approvals != "deny" && f.approvals != "allow":
		return fmt.Errorf(`--approvals is %q, want "ask", "deny" or "allow"`, f.approvals)
	case f.cwdLost != "" && f.cwdLost != protocol.CwdLostWait && f.cwdLost != protocol.CwdLostFresh:
		return fmt.Errorf(`--cwd-lost is %q, want "wait" or "fresh"`, f.cwdLost)
	case f.approvalTimeout <= 0:
		return errors.New("--approval-timeout is not above 0")
	case f.compactAt < 0 || f.compactAt > 100:
		return errors.New("--compact-at is not between 0 and 100")
	case f.maxMessages < 1:
		return errors.New("--max-messages is less than 1")
	case f.maxIterations < 1:
		return errors.New("--max-iterations is less than 1")
	case f.set.Changed("tool-timeout") && config.ToolTime(f.toolTimeout) == 0:
		return errors.New("--tool-timeout is not above 0 and at most 86400 seconds")
	case strings.ContainsRune(f.cwd, 0):
		return errors.New("--cwd holds a NUL")
	case f.parent != "" && journal.CheckName(f.parent) != nil:
		return fmt.Errorf("--parent-agent is %.100q, want the name of an agent: letters, digits, dots, dashes and underscores, at most 63", f.parent)
	}
	for _, name := range f.passEnv {
		if name, _, valued := strings.Cut(name, "="); valued || !protocol.IsVariableName(name) { // a value may be secret
			return fmt.Errorf("--pass-env: %.100q has a value or is no variable's name, want names alone: ASCII letters, digits and underscores, no digit first", name)
		}
	}
	var err error
	if f.permissions, err = readPermissions("permissions", f.permissionsJSON); err != nil {
		return err
	}
	if f.ceiling, err = readPermissions("ceiling", f.ceilingJSON); err != nil {
		return err
	}
	if f.program, err = readProgram(f.programJSON); err != nil {
		return err
	}
	return f.readSettings()
}

// readProgram reads the value of --program; nil if it was not given.
func readProgram(text string) (*protocol.AgentProgram, error) {
	if text == "" {
		return nil, nil
	}
	p := &protocol.AgentProgram{}
	err := strict.Unmarshal([]byte(text), p, strict.RejectUnknown)
	if err == nil {
		err = p.Check()
	}
	if err != nil {
		return nil, fmt.Errorf("--program: %w", err)
	}
	return p, nil
}

// readSettings puts what the flags say of turns together.
func (f *flags) readSettings() error {
	var given protocol.TurnSettings
	if f.settingsJSON != "" {
		err := strict.Unmarshal([]byte(f.settingsJSON), &given, strict.RejectUnknown)
		if err == nil {
			err = given.Check()
		}
		if err != nil {
			return fmt.Errorf("--settings: %w", err)
		}
	}
	for flag, into := range map[string]struct {
		member **uint64
		value  int
	}{
		"max-iterations": {&f.settings.MaxIterations, f.maxIterations}, "max-messages": {&f.settings.MaxMessages, f.maxMessages},
		"compact-at": {&f.settings.CompactAt, f.compactAt},
	} {
		if f.set.Changed(flag) {
			*into.member = new(uint64(into.value))
		}
	}
	f.settings = f.settings.Over(given)
	return nil
}

// unexpected is the error for an argument that is no flag, with the verb that was probably
// meant.
func unexpected(arg string) error {
	near := suggest.Nearest(arg, []string{"rpc", "schema", "check", "spare", "version"})
	if near == arg {
		return fmt.Errorf("unexpected argument %q: it comes first, before all flags", arg)
	}
	if near != "" {
		return fmt.Errorf("unexpected argument %q: did you mean nexus-child %s?", arg, near)
	}
	return fmt.Errorf("unexpected argument %q", arg)
}

// readPermissions reads the value of a flag; nil if it was not given.
func readPermissions(flag, text string) (*protocol.Permissions, error) {
	if text == "" {
		return nil, nil
	}
	p := &protocol.Permissions{}
	if err := strict.Unmarshal([]byte(text), p, strict.RejectUnknown); err != nil {
		return nil, fmt.Errorf("--%s: %w", flag, err)
	}
	if err := p.CheckTools(protocol.Permissions{}); err != nil {
		return nil, fmt.Errorf("--%s: %w", flag, err)
	}
	return p, nil
}

// bare reports whether the flags say nothing about where the conversation is saved,
// nor that it is not: it is an unnamed session in the home then.
func (f *flags) bare() bool {
	return f.session == "" && f.resume == "" && f.sessionDir == "" && !f.noSession
}

// saysSystem reports whether the flags say what the system prompt is, that
// there is none perhaps.
func (f *flags) saysSystem() bool {
	return f.set.Changed("system") || f.systemFile != "" || f.systemEnv
}

// turns are how turns run: by the flags, else as the session saved, else by the
// configuration.
func (f *flags) turns(saved transcript.Settings, c *config.Config) protocol.TurnSettings {
	held := f.settings.Over(protocol.Value(saved.Turns).Over(c.Settings))
	if bound := f.toolBound(c); bound > 0 {
		held.ToolTimeoutS = new(protocol.Tighter(protocol.Value(held.ToolTimeoutS), bound))
	}
	return held
}

// toolBound is what bounds each tool call, in seconds, whatever is set later: --tool-timeout, or
// what the configuration says of tools; 0 if neither is given.
func (f *flags) toolBound(c *config.Config) float64 {
	if f.set.Changed("tool-timeout") {
		return f.toolTimeout
	}
	return c.ToolTime.Seconds()
}
