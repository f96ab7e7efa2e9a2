package child

import (
	"testing"

	"nexus.internal/protocol"
)

// A command without a handler would end the child.
func TestEveryCommandHasAHandler(t *testing.T) {
	for _, c := range protocol.Commands() {
		if _, ok := handlers[c.Name()]; ok == (c.Name() == protocol.Shutdown{}.Name()) {
			t.Errorf("%s has a handler: %v", c.Name(), ok)
		}
	}
}
