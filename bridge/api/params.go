package api

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"nexus.internal/protocol"
	"nexus.internal/protocol/strict"
	"nexus.internal/protocol/suggest"
	"nexus.internal/protocol/textcut"
)

// ParamError says what is wrong with the parameters of a request. Its text is
// the message that the client reads.
type ParamError struct {
	// Param is the dotted path of the parameter; "" for the parameters as a
	// whole.
	Param string
	// Problem is the whole message.
	Problem string
	// Hint says what was probably meant; "" if nothing is known.
	Hint string
}

func (e *ParamError) Error() string { return e.Problem }

// Invalid is the ParamError of a parameter whose value cannot be used.
func Invalid(param, format string, args ...any) *ParamError {
	return &ParamError{Param: param, Problem: "Invalid parameter " + param + ": " + fmt.Sprintf(format, args...)}
}

// Near makes the hint of e the one of known that is nearest to the value given, if one is near.
func (e *ParamError) Near(given string, known []string) *ParamError {
	if near := suggest.Nearest(given, known); near != "" {
		e.Hint = "did you mean " + near + "?"
	}
	return e
}

func missing(param string) *ParamError {
	return &ParamError{Param: param, Problem: "Missing required parameter: " + param}
}

// Decode reads the parameters of a request into P and checks them. Nil raw and null are
// an empty object. The error is a *ParamError.
func Decode[P any](raw jsontext.Value) (P, error) {
	var p P
	if len(raw) == 0 || raw.Kind() == 'n' {
		raw = jsontext.Value("{}")
	}
	err := strict.Fill(raw, &p, strict.RejectUnknown)
	if err == nil {
		return p, Check(p)
	}
	var zero P
	e, ok := errors.AsType[*strict.Error](err)
	switch {
	case !ok || e.Path == "":
		return zero, &ParamError{Problem: "Invalid params: " + err.Error()}
	case e.Problem == "is missing":
		return zero, missing(e.Path)
	case e.Problem == "is not known":
		unknown := &ParamError{Param: e.Path, Problem: "Unknown parameter: " + clip(e.Path)}
		switch {
		case e.Nearest != "":
			unknown.Hint = "did you mean " + e.Path[:strings.LastIndex(e.Path, ".")+1] + e.Nearest + "?"
		case len(e.Known) == 0:
			unknown.Hint = "it takes none"
		default:
			unknown.Hint = "known are: " + strings.Join(e.Known, ", ")
		}
		return zero, unknown
	default:
		return zero, Invalid(e.Path, "%s", clip(e.Problem))
	}
}

// clip keeps what a client sent from filling our answer.
func clip(s string) string { return textcut.Clip(s, 200) }

// Check finds parameters, a struct, that are of the right type and still cannot be used:
// what their tags do not allow, and what their check method says. The error is a
// *ParamError.
func Check(params any) error {
	if checked, ok := params.(interface{ check() error }); ok {
		if err := checked.check(); err != nil {
			return err
		}
	}
	return checkBounds(params)
}

// ValidAgentID reports whether id can name an agent: an optional leading dot
// (a temporary agent), then a letter or digit, then up to 62 letters, digits,
// dots, underscores and hyphens, with no two dots in a row.
func ValidAgentID(id string) bool {
	name := strings.TrimPrefix(id, ".")
	if name == "" || len(name) > 63 || strings.Contains(id, "..") || strings.IndexByte("._-", name[0]) >= 0 {
		return false
	}
	for _, c := range []byte(name) {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && strings.IndexByte("._-", c) < 0 {
			return false
		}
	}
	return true
}

// CheckAgentID finds what cannot be the name of an agent (ValidAgentID), as the
// parameter agent_id. The error is a *ParamError.
func CheckAgentID(id string) error { return checkName("agent_id", id) }

// wantName says in words what ValidAgentID wants.
const wantName = "want a name like worker-1: a letter or digit, then up to 62 letters, digits, '_', '-' and single '.'; " +
	"one more '.' in front makes it temporary"

// IsTemp reports whether id names a temporary agent, whose conversation is not
// kept when it is destroyed.
func IsTemp(id string) bool { return strings.HasPrefix(id, ".") }

// MaxTimeout bounds timeout_s, in seconds.
const MaxTimeout = 24 * 60 * 60

// What becomes of calls that need an approval. The third, allow, is not to be
// had over RPC.
const (
	ApprovalsAsk   = "ask"
	ApprovalsDeny  = "deny"
	ApprovalsAllow = "allow"
)

func (p AgentIDParams) check() error { return CheckAgentID(p.AgentID) }

func (p CreateAgentParams) check() error {
	if p.AgentID != nil {
		if err := CheckAgentID(*p.AgentID); err != nil {
			return err
		}
	}
	if p.ParentAgentID != nil {
		if err := checkName("parent_agent_id", *p.ParentAgentID); err != nil {
			return err
		}
	}
	for name, dir := range map[string]*string{"cwd": p.Cwd, "default_cwd": p.DefaultCwd} {
		if dir != nil && !path.IsAbs(*dir) {
			return Invalid(name, "want an absolute path")
		}
	}
	if p.Preset != nil {
		if err := checkPreset(*p.Preset); err != nil {
			return err
		}
	}
	for _, one := range []struct {
		name  string
		value *string
	}{{"model", p.Model}, {"provider", p.Provider}, {"initial_message", p.InitialMessage}} {
		if one.value != nil && *one.value == "" {
			return Invalid(one.name, "is empty")
		}
		if one.value != nil && one.name != "initial_message" && strings.ContainsFunc(*one.value, control) {
			return Invalid(one.name, "contains a control character")
		}
	}
	if err := p.checkKind(); err != nil {
		return err
	}
	for name, value := range map[string]*string{"cwd": p.Cwd, "default_cwd": p.DefaultCwd, "system_prompt": p.SystemPrompt} {
		if value != nil && strings.Contains(*value, "\x00") {
			return Invalid(name, "contains a NUL character")
		}
	}
	if p.WaitForInitialResponse != nil && *p.WaitForInitialResponse && p.InitialMessage == nil {
		return missing("initial_message")
	}
	if p.Limits != nil {
		if err := p.Limits.check(); err != nil {
			return err
		}
	}
	if p.Settings != nil {
		if err := p.Settings.check(); err != nil {
			return err
		}
	}
	if err := CheckEnv(protocol.Value(p.Env), p.Kind != nil); err != nil {
		return err
	}
	if protocol.Value(p.Temporary) && p.AgentID != nil {
		return Invalid("temporary", "the agent has a name: a temporary one begins with a dot")
	}
	if protocol.Value(p.IfExists) == IfExistsUse && p.AgentID == nil {
		return missing("agent_id")
	}
	return p.checkPermissions()
}

// Bounds of the limits of processes. With fewer files, or less memory, no agent's
// process starts.
const (
	MaxLimit     = 1 << 50
	MaxLimitUSD  = 1_000_000
	MinOpenFiles = 64
	MinMemory    = 2 << 20 // bytes
)

// LimitMember is one limit by its name.
type LimitMember struct {
	Name  string
	Given *uint64 // nil if it is missing
	Held  *uint64
	Most  uint64
	// Millionths says that the numbers are millionths of a dollar, and copies.
	Millionths bool
}

// Text is the limit that holds.
func (m LimitMember) Text() string {
	if m.Millionths {
		return strconv.FormatFloat(float64(*m.Held)/1e6, 'f', -1, 64)
	}
	return strconv.FormatUint(*m.Held, 10)
}

// millionths are those of a number of dollars; nil for nil.
func millionths(dollars *float64) *uint64 {
	if dollars == nil {
		return nil
	}
	return new(uint64(math.Ceil(*dollars * 1e6)))
}

// Beside are all limits, in the same order each time, those of l beside those that hold.
func (l Limits) Beside(held *protocol.Limits) []LimitMember {
	return []LimitMember{
		{Name: "tokens", Given: l.Tokens, Held: &held.Tokens, Most: MaxLimit},
		{Name: "cost_usd", Given: millionths(l.CostUSD), Held: millionths(&held.CostUSD), Most: MaxLimit, Millionths: true},
		{Name: "requests_per_minute", Given: l.RequestsPerMinute, Held: &held.RequestsPerMinute, Most: MaxLimit},
		{Name: "tokens_per_minute", Given: l.TokensPerMinute, Held: &held.TokensPerMinute, Most: MaxLimit},
		{Name: "memory_bytes", Given: l.MemoryBytes, Held: &held.MemoryBytes, Most: MaxLimit},
		{Name: "processes", Given: l.Processes, Held: &held.Processes, Most: MaxLimit},
		{Name: "open_files", Given: l.OpenFiles, Held: &held.OpenFiles, Most: MaxLimit},
		{Name: "cpu_s", Given: l.CPUSeconds, Held: &held.CPUSeconds, Most: MaxLimit},
		{Name: "output_bytes_per_s", Given: l.OutputBytesPerSecond, Held: &held.OutputBytesPerSecond, Most: MaxLimit},
		{Name: "turn_s", Given: l.TurnSeconds, Held: &held.TurnSeconds, Most: MaxTimeout},
		{Name: "agents", Given: l.Agents, Held: &held.Agents, Most: MaxLimit},
	}
}

// Over puts the limits that are given in the place of those that hold.
func (l Limits) Over(held protocol.Limits) protocol.Limits {
	for _, m := range l.Beside(&held) {
		*m.Held = protocol.ValueOr(m.Given, *m.Held)
	}
	held.CostUSD = protocol.ValueOr(l.CostUSD, held.CostUSD)
	return held
}

func (l Limits) check() error {
	if cost := protocol.Value(l.CostUSD); !(cost >= 0 && cost <= MaxLimitUSD) {
		return Invalid("limits.cost_usd", "want dollars from 0 to %d, where 0 is no limit, not %v", MaxLimitUSD, cost)
	}
	given := l.Over(protocol.Limits{})
	for _, m := range l.Beside(&given) {
		if *m.Held > m.Most {
			return Invalid("limits."+m.Name, "want at most %d, or 0 for no limit", m.Most)
		}
	}
	for _, one := range []struct {
		name         string
		value, least uint64
	}{{"open_files", given.OpenFiles, MinOpenFiles}, {"memory_bytes", given.MemoryBytes, MinMemory}} {
		if one.value > 0 && one.value < one.least {
			return Invalid("limits."+one.name, "want at least %d, or 0 for no limit", one.least)
		}
	}
	return nil
}

// Turns are the settings as an agent takes them.
func (s TurnSettings) Turns() protocol.TurnSettings { return protocol.TurnSettings(s) }

func (s TurnSettings) check() error {
	if e, ok := errors.AsType[*strict.Error](s.Turns().Check()); ok {
		return Invalid("settings."+e.Path, "it %s", e.Problem)
	}
	return nil
}

// MaxRules bounds allowed_write_paths and disable_tools, in items.
const MaxRules = 256

func (p CreateAgentParams) checkPermissions() error {
	if err := checkPaths("allowed_write_paths", protocol.Value(p.AllowedWritePaths)); err != nil {
		return err
	}
	if err := checkWritable("allowed_write_paths", protocol.Value(p.AllowedWritePaths)); err != nil {
		return err
	}
	if err := checkHosts("network", protocol.Value(p.Network)); err != nil {
		return err
	}
	if err := checkTools("disable_tools", protocol.Value(p.DisableTools)); err != nil {
		return err
	}
	if protocol.Value(p.Approvals) == ApprovalsAllow {
		return Invalid("approvals", "allow cannot be granted over RPC")
	}
	return nil
}

// checkKind finds what can be no program of another make. Which kinds there are, the server knows.
func (p CreateAgentParams) checkKind() error {
	if p.Kind == nil {
		for name, given := range map[string]bool{
			"command": p.Command != nil, "args": p.Args != nil, "home": p.Home != nil, "sandbox": p.Sandbox != nil, "models": p.Models != nil,
		} {
			if given {
				return Invalid(name, "is for agents of other makes: name their kind")
			}
		}
		return nil
	}
	switch {
	case *p.Kind == "" || strings.ContainsFunc(*p.Kind, control):
		return Invalid("kind", "want the name of a kind")
	case p.Provider != nil:
		return Invalid("provider", "an agent of another make has none: models names the provider that its program reaches through the server")
	case p.Settings != nil:
		return Invalid("settings", "an agent of another make has none: its program runs its turns")
	case p.Command != nil && len(*p.Command) == 0:
		return Invalid("command", "is empty")
	}
	return nil
}

// checkPreset finds what can be the name of no preset to be had. Which ones the
// configuration has, the server knows.
func checkPreset(name string) error {
	switch {
	case name == "" || strings.ContainsFunc(name, control):
		return Invalid("preset", "want the name of a preset")
	}
	return nil
}

func (p SetCwdParams) check() error {
	if !path.IsAbs(p.Cwd) || strings.Contains(p.Cwd, "\x00") {
		return Invalid("cwd", "want an absolute path")
	}
	return nil
}

func control(r rune) bool { return r < ' ' || r == 0x7f }

func (p SendParams) check() error {
	if strings.TrimSpace(p.Content) == "" && len(protocol.Value(p.Attachments)) == 0 {
		return Invalid("content", "is empty")
	}
	if p.Source != nil {
		if err := protocol.CheckSource(*p.Source); err != nil {
			return Invalid("source", "%v", err)
		}
	}
	if p.SourceAgentID != nil {
		if err := protocol.CheckSource(*p.SourceAgentID); err != nil {
			return Invalid("source_agent_id", "%v", err)
		}
	}
	if p.Attachments != nil {
		for i, a := range *p.Attachments {
			if err := a.Check(); err != nil {
				member := ""
				if a.Path != "" && a.Text == nil && a.Data == nil {
					member = ".path"
				}
				return Invalid(fmt.Sprintf("attachments[%d]%s", i, member), "%v", err)
			}
		}
	}
	return nil
}

// The roles that a configuration can give to agents (SPEC §6.7).
const (
	RolePlanner  = "planner"
	RoleExecutor = "executor"
)

// PlanPrefix and TaskPrefix begin the names of agents that carry out a plan or one task.
const (
	PlanPrefix = ".plan-"
	TaskPrefix = ".task-"
)

// CheckReserved is NOT_PERMITTED if nobody but the server may give an agent or a session
// that name: it is a role's, or one of roleAgents, the agents of the configured roles, also
// where no such agent is there yet, or one that run_plan gives. Whoever took it before the
// server does would get what is meant for the role.
func CheckReserved(id string, roleAgents ...string) error {
	if strings.HasPrefix(id, PlanPrefix) || strings.HasPrefix(id, TaskPrefix) || id == RolePlanner || id == RoleExecutor || slices.Contains(roleAgents, id) {
		return Denied("%s is a reserved name: the server itself creates the agent of a role or of a plan; choose another name", id)
	}
	return nil
}

// Bounds of an agent's own variables.
const (
	MaxEnv     = 64        // variables
	MaxEnvSize = 128 << 10 // bytes of all names and values

	maxEnvName = 128 // bytes
)

// reserved are variables that decide how a program is found, loaded or read by a
// shell, where an agent lives, or how Go's runtime works.
var reserved = []string{
	"PATH", "HOME", "USER", "LOGNAME", "TMPDIR", "TERM", "SHELL", "IFS", "ENV", "BASH_ENV", "SHELLOPTS", "BASHOPTS", "PS4",
	"PROMPT_COMMAND", "GODEBUG", "GOGC", "GOMEMLIMIT", "GOMAXPROCS", "GOTRACEBACK", "GORACE", "GOCOVERDIR",
	"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID",
}

// CheckEnv finds variables that an agent cannot have; one of another make may have keys. The error
// is a *ParamError.
func CheckEnv(env map[string]string, keys bool) error {
	if len(env) > MaxEnv {
		return Invalid("env", "want at most %d variables, have %d", MaxEnv, len(env))
	}
	size := 0
	for _, name := range slices.Sorted(maps.Keys(env)) {
		upper := strings.ToUpper(name)
		switch {
		case !protocol.IsVariableName(name), len(name) > maxEnvName:
			return Invalid("env", "%q is no name of a variable", clip(name))
		case slices.Contains(reserved, upper), strings.HasPrefix(upper, "LD_"), strings.HasPrefix(upper, "DYLD_"),
			strings.HasPrefix(upper, "NEXUS"), strings.HasPrefix(upper, "BASH_FUNC_"), strings.HasSuffix(upper, "_API_KEY") && !keys:
			return Invalid("env", "%s cannot be set", name)
		case strings.Contains(env[name], "\x00"):
			return Invalid("env."+name, "contains a NUL character")
		}
		size += len(name) + len(env[name])
	}
	if size > MaxEnvSize {
		return Invalid("env", "want at most %d bytes, have %d", MaxEnvSize, size)
	}
	return nil
}
