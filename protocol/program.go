package protocol

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// AgentProgram is a program of another make that an agent runs as, in place of a model and the
// tools of nexus (SPEC §4.11). A session keeps it, so that the agent comes back as the same.
type AgentProgram struct {
	// Kind is the name of the kind: one of Protocols, or one that the configuration names.
	Kind string `json:"kind"`
	// Protocol is how the program is spoken to: one of Protocols.
	Protocol string `json:"protocol" enum:"acp,claude,codex,pi,nexus,pipe"`
	// Command is the program, looked up on PATH unless it has a slash, and its arguments.
	Command []string `json:"command"`
	// Home is what the program finds as HOME: ProgramHomeOwn, or ProgramHomeUser; "" is own.
	Home string `json:"home,omitempty" wire:"default" enum:"own,user"`
	// Sandbox confines the program and all that it starts as programs of the agent's tools are.
	Sandbox bool `json:"sandbox,omitzero" wire:"default"`
	// Models is the provider whose models the program is given without a key, through the
	// broker; "" for none: it has credentials of its own.
	Models string `json:"models,omitempty" wire:"default"`
}

// The homes of programs.
const (
	// ProgramHomeOwn is a directory of the agent's own that lasts as long as its session.
	ProgramHomeOwn = "own"
	// ProgramHomeUser is that of the user whom the server runs as, with all logins in it.
	ProgramHomeUser = "user"
)

// ProgramStartTimeout is how long a program may take until it takes prompts: some load a whole
// runtime, and on a busy machine many start at once.
const ProgramStartTimeout = 60 * time.Second

// The bounds of a program's command.
const (
	maxProgramArguments = 64
	maxProgramArgument  = 4 << 10 // bytes
)

// ProgramProtocols are the protocols of agents of other makes, in their order in SPEC §4.11.
func ProgramProtocols() []string { return []string{"acp", "claude", "codex", "pi", "nexus", "pipe"} }

// Check reports what is wrong with a program, as far as that can be seen without starting it.
func (p AgentProgram) Check() error {
	switch {
	case p.Kind == "":
		return errors.New(`member "kind" is empty`)
	case !slices.Contains(ProgramProtocols(), p.Protocol):
		return fmt.Errorf(`member "protocol" is %.64q, want one of %s`, p.Protocol, strings.Join(ProgramProtocols(), ", "))
	case len(p.Command) == 0 || p.Command[0] == "":
		return errors.New(`member "command" names no program`)
	case len(p.Command) > maxProgramArguments:
		return fmt.Errorf(`member "command" has %d arguments, at most %d are taken`, len(p.Command), maxProgramArguments)
	case p.Home != "" && p.Home != ProgramHomeOwn && p.Home != ProgramHomeUser:
		return fmt.Errorf(`member "home" is %.64q, want %s or %s`, p.Home, ProgramHomeOwn, ProgramHomeUser)
	}
	for i, argument := range p.Command {
		if len(argument) > maxProgramArgument || strings.ContainsRune(argument, 0) {
			return fmt.Errorf(`member "command": argument %d holds a NUL or more than %d bytes`, i, maxProgramArgument)
		}
	}
	return nil
}

// Name is the program without its directory, for people.
func (p AgentProgram) Name() string { return filepath.Base(p.Command[0]) }

// ProgramState is what is known of the program that an agent runs as.
type ProgramState struct {
	AgentProgram
	// Name and Version are what the program calls itself; "" if it does not say.
	Name    string `json:"name" wire:"default"`
	Version string `json:"version" wire:"default"`
	// Session is the program's own id of the conversation; "" if it has none.
	Session string `json:"session" wire:"default"`
	// Resumed is how this process came by the conversation, and ResumeReason why it is not by the
	// program itself.
	Resumed      Resumed `json:"resumed" wire:"default" enum:"new,program,context"`
	ResumeReason string  `json:"resume_reason,omitempty" wire:"default"`
	// Commands are the commands of the child protocol that the agent takes.
	Commands []string `json:"commands" wire:"default"`
}

// Resumed says how a process of an agent of another make came by its conversation.
type Resumed string

// The ways.
const (
	// ResumedNew is none: the conversation begins.
	ResumedNew Resumed = "new"
	// ResumedByProgram is the program's own: it has what it had before.
	ResumedByProgram Resumed = "program"
	// ResumedByContext is the conversation that nexus kept, which the program is given as text
	// before the next prompt.
	ResumedByContext Resumed = "context"
)

// PermissionOption is one of the answers that a program of another make offers to a question of
// its own.
type PermissionOption struct {
	ID   string `json:"option_id"`
	Name string `json:"name"`
	// Kind is what it means: allow_once, allow_session or deny.
	Kind Decision `json:"kind" enum:"allow_once,allow_session,deny"`
}

// ModelArguments are what a program of a protocol needs beside its environment to find models at base, a URL without a
// path. Codex takes no address from there: it gets a provider of its own, with the key of OPENAI_API_KEY.
func ModelArguments(protocol, base string) []string {
	if protocol != "codex" {
		return nil
	}
	provider := fmt.Sprintf(`model_providers.nexus={name="nexus",base_url=%q,wire_api="responses",env_key="OPENAI_API_KEY",supports_websockets=false}`, base+"/v1")
	return []string{"-c", provider, "-c", `model_provider="nexus"`}
}
