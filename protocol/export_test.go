package protocol

import (
	"maps"
	"slices"
)

// The quick and the careful look at the names of a line that is valid.
var (
	PlainNames   = plainNames
	CompareNames = compareNames
)

// The quick reading of a prompt, and the careful one of every command.
var (
	PlainPrompt      = plainPrompt
	DecodeAnyCommand = decodeCommand
)

// The names of the closed sets, sorted.
func CommandTypes() []string   { return slices.Sorted(maps.Keys(commands)) }
func AssistantTypes() []string { return slices.Sorted(maps.Keys(assistantEvents)) }
func EventTypes() []string     { return slices.Sorted(maps.Keys(events)) }
