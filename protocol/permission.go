package protocol

import "slices"

// Permissions is what an agent may do, as it is asked for, saved and shown. The
// zero value of a member leaves it to the preset. What it means is decided by
// the child (SPEC §4.5).
type Permissions struct {
	// Preset is yolo, trusted, sandboxed, or one that the configuration names.
	Preset string `json:"preset"`
	// DisabledTools are not there at all for the model.
	DisabledTools []string `json:"disabled_tools,omitempty" wire:"default"`
	// AllowedPaths are directories beside the working directory that tools may
	// read and change. All paths are absolute. Nil leaves them to the preset, and to the
	// configuration; an empty list is none.
	AllowedPaths []string `json:"allowed_paths,omitzero" wire:"default"`
	// WritePaths, unless nil, are the only places that tools may change; an
	// empty list is none.
	WritePaths []string `json:"write_paths,omitzero" wire:"default"`
	// BlockedPaths are out of bounds wherever they lie.
	BlockedPaths []string `json:"blocked_paths,omitempty" wire:"default"`
	// Network, unless nil, are the only hosts that programs reach, also under sandboxed, which
	// reaches none without it: "example.com", "*.example.com", "example.com:8080", "10.1.2.3".
	// Without a port it is 80 and 443; an empty list is no host. Addresses of this machine and of
	// private networks are reached only if they are named.
	Network []string `json:"network,omitzero" wire:"default"`
	// Tools are rules for single tools, by name.
	Tools map[string]ToolRule `json:"tools,omitempty" wire:"default"`
}

// ToolRule says more about one tool.
type ToolRule struct {
	// What happens to its calls: allow, ask or deny; where it is missing, the preset decides.
	Mode string `json:"mode,omitempty" wire:"default" enum:"allow,ask,deny" filled:"allow, ask or deny"`
	// The only places that this tool may touch, absolute; any that the agent may if missing.
	AllowedPaths []string `json:"allowed_paths,omitzero" wire:"default"`
	// Places that this tool must not touch besides, absolute.
	BlockedPaths []string `json:"blocked_paths,omitempty" wire:"default"`
}

// Action is what a tool call does to the world.
type Action string

// The actions, from the least to the most that can go wrong.
const (
	ActionNone     Action = "none"     // it touches nothing, as sleep does
	ActionRead     Action = "read"     // files
	ActionWrite    Action = "write"    // files
	ActionDelegate Action = "delegate" // other agents
	ActionExecute  Action = "execute"  // programs
	ActionExternal Action = "external" // a tool of somebody else's server
	ActionFetch    Action = "fetch"    // a page of the network
)

// Decision answers a [PermissionRequest].
type Decision string

// The decisions.
const (
	AllowOnce    Decision = "allow_once"
	AllowSession Decision = "allow_session" // the like, too, for the rest of the session
	Deny         Decision = "deny"
)

// Allowance is what AllowSession granted. It is saved with the session.
type Allowance struct {
	// The tool.
	Tool string `json:"tool"`
	// What the tool may do so.
	Action Action `json:"action"`
	// Dir is the directory below which files may be touched, or in which
	// programs may be run; "" is not bound to one.
	Dir string `json:"dir,omitempty" wire:"default"`
	// Alone says that Dir is a file that alone may be touched, and nothing below it should it become a directory.
	Alone bool `json:"alone,omitzero" wire:"default"`
	// Programs are the commands that may be run; empty means not bound to any.
	Programs []string `json:"programs,omitempty" wire:"default"`
	// Hosts are those whose pages may be fetched, with their port but for that of https.
	Hosts []string `json:"hosts,omitempty" wire:"default"`
}

// Equal reports whether both allow the same.
func (a Allowance) Equal(b Allowance) bool {
	return a.Tool == b.Tool && a.Action == b.Action && a.Dir == b.Dir && a.Alone == b.Alone && slices.Equal(a.Programs, b.Programs) && slices.Equal(a.Hosts, b.Hosts)
}

// Without is held without those that are revoked; empty if revoked is.
func Without(held, revoked []Allowance) []Allowance {
	if len(revoked) == 0 {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(held), func(a Allowance) bool { return slices.ContainsFunc(revoked, a.Equal) })
}

// Bound says what a command that changes what an agent may do stays within.
type Bound string

// The bounds. What is beyond them is refused (SPEC §4.5).
const (
	// WithinCeiling is the owner's own word: what comes of it is then what the
	// owner granted.
	WithinCeiling Bound = ""
	WithinGranted Bound = "granted" // by the owner's last word
	WithinHeld    Bound = "held"    // it can only narrow
)

// HostError is why a [HostCall] failed.
type HostError struct {
	// Code is that of the façade's error (SPEC §6.2).
	Code    int    `json:"code"`
	Message string `json:"message"`
}
