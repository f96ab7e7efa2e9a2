//go:build !race

package protocol_test

import (
	"testing"

	"nexus.internal/protocol"
)

// Each event is looked at for members that differ in case alone, so for ordinary ones
// that costs no garbage: it was a map for the frame and one for its event.
func TestValidEventAllocatesNothing(t *testing.T) {
	for _, line := range []string{
		`{"type":"response","id":"1","command":"prompt","ok":true,"accepted":true}`,
		`{"type":"message_update","event":{"type":"toolcall_input_delta","tool_id":"1","delta":"{\"a\":1}"}}`,
		`{"type":"agent_end","turn_id":"1","usage":{"input_tokens":1,"output_tokens":2},"stop_reason":"completed","text":"done"}`,
	} {
		if allocs := testing.AllocsPerRun(1000, func() {
			if err := protocol.ValidEvent([]byte(line)); err != nil {
				t.Fatal(err)
			}
		}); allocs > 1 { // the copy of the line
			t.Errorf("%s: %v allocations", line, allocs)
		}
	}
}
