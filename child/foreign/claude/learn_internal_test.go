package claude

import (
	"testing"

	"github.com/tidwall/gjson"
)

// An id that the program would read as a flag, when it is given it back, is none.
func TestIDThatIsAFlag(t *testing.T) {
	s := &session{id: "before"}
	s.learn(gjson.Parse(`{"subtype":"init","session_id":"--dangerously-skip-permissions"}`))
	if s.id != "before" {
		t.Errorf("the conversation is %q", s.id)
	}
	if s.learn(gjson.Parse(`{"subtype":"init","session_id":"next"}`)); s.id != "next" {
		t.Errorf("the conversation is %q", s.id)
	}
}
