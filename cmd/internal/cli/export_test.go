package cli

import "io"

// NewScreen is a screen, with its flush.
func NewScreen(out io.Writer) (w io.Writer, flush func() error) {
	s := &screen{out: out}
	return s, s.flush
}

// ToYAML is a value, given as JSON, in YAML.
var ToYAML = toYAML

// DropTyped drops what was typed at a terminal and not read.
var DropTyped = dropTyped
