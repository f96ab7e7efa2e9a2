package protocol

import (
	"fmt"

	"github.com/go-json-experiment/json"

	"nexus.internal/protocol/strict"
)

// What nexus-child spare and its server say to each other before the process is an
// agent, each one line (SUPERVISION §5.9). Both belong to one build: it is no part of
// the child protocol.
type (
	// SpareReady is the first line on stdout of a spare that waits.
	SpareReady struct {
		Type string `json:"type"` // TypeSpare
	}

	// Become is the first line on the stdin of a spare, and what makes it an agent.
	Become struct {
		Type string `json:"type"` // TypeBecome
		// Args are the arguments of the command line, the program's name excluded.
		Args []string `json:"args"`
		// Dir is the working directory; "" leaves the one that the process has.
		Dir string `json:"dir,omitzero" wire:"default"`
		// System is the value of SystemVariable; nil if it is not set.
		System *string `json:"system,omitzero"`
	}
)

// The types of the lines above.
const (
	TypeSpare  = "spare"
	TypeBecome = "become"
)

// SystemVariable is the variable of the environment that has the system prompt of a
// child with --system-env. Programs of agents get no variable of such a name (SPEC §4.10).
const SystemVariable = "NEXUS3_SYSTEM"

// Line is the line of b, its newline excluded. The error says that b has text that is not
// UTF-8.
func (b Become) Line() ([]byte, error) {
	b.Type = TypeBecome
	line, err := json.Marshal(b)
	if err != nil {
		return nil, fmt.Errorf("encode become: %w", err)
	}
	return line, nil
}

// DecodeBecome reads such a line.
func DecodeBecome(line []byte) (Become, error) {
	var b Become
	err := strict.Unmarshal(line, &b, strict.RejectUnknown)
	if err == nil && b.Type != TypeBecome {
		err = fmt.Errorf("the type is %q", b.Type)
	}
	if err != nil {
		return Become{}, fmt.Errorf("decode become: %w", err)
	}
	return b, nil
}
