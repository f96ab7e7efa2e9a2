package mcpserve

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
)

// An id that the library would take for another one is refused by name, and a cancellation of such a one is of no request.
func TestIDs(t *testing.T) {
	for id, taken := range map[string]bool{
		`1`: true, `"a"`: true, `""`: true, `-9007199254740992`: true, `9007199254740993`: false, `1.5`: false, `1e3`: false, `99999999999999999999999`: false,
	} {
		var out bytes.Buffer
		s := &stdio{out: &out}
		message, err := s.decode(fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"method":"ping"}`, id))
		if err != nil || (message != nil) != taken {
			t.Errorf("%s: %v, %v", id, message, err)
		}
		if refused := strings.Contains(out.String(), `"id":`+id+`,`) && strings.Contains(out.String(), "is a string or a whole number of at most 9007199254740992"); refused == taken {
			t.Errorf("%s is answered by %q", id, out.String())
		}
		message, err = s.decode(fmt.Appendf(nil, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%s}}`, id))
		if err != nil || (message != nil) != taken {
			t.Errorf("a cancellation of %s: %v, %v", id, message, err)
		}
	}
}
