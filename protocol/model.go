package protocol

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"nexus.internal/protocol/textcut"
)

// MaxModelName bounds the name of a model and that of a provider, in bytes: a
// longer one would not fit into the frames that bear it beside others
// (SPEC §4.3).
const MaxModelName = 256

// BrokerRefusal is the header of each answer at a model's socket that the broker
// gave instead of the service. No service's answer has it there (SPEC §5.7).
const BrokerRefusal = "Nexus-Broker-Refusal"

// ModelHeader is the header by which a child tells the broker, with each request, the id of
// the model that it is to. It does not reach the service.
const ModelHeader = "Nexus-Model"

// ProgramHeader is the header by which a child tells the broker that a request is of a program of another make, and not its own. It does not reach the service.
const ProgramHeader = "Nexus-Program"

// CheckModelName reports why a model or provider cannot have that name: it is
// empty, longer than MaxModelName bytes, not UTF-8, or has control characters.
// The error does not repeat the name.
func CheckModelName(name string) error {
	switch {
	case name == "":
		return errors.New("the name is empty")
	case len(name) > MaxModelName:
		return fmt.Errorf("the name is %d bytes long, at most %d are allowed", len(name), MaxModelName)
	case !utf8.ValidString(name):
		return errors.New("the name is not UTF-8")
	case strings.ContainsFunc(name, unicode.IsControl):
		return errors.New("the name has a control character")
	default:
		return nil
	}
}

// CutModelName makes a name that CheckModelName accepts of what a service calls
// its model, or "" of what has nothing to keep.
func CutModelName(name string) string {
	return textcut.Head(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(name, "")), MaxModelName)
}
