package child_test

import (
	"testing"
	"testing/synctest"
)

// A command that bears the id of a turn in flight would make a second response
// of that id: it is refused, and the turn goes on.
func TestIDsInFlightAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := start(t, t.Context(), options())
		p.want(`{"type":"ready"}`)
		p.send(`{"type":"prompt","id":"1","message":"hang"}`)
		p.want(`{"type":"message_update"}`)
		p.send(`{"type":"follow_up","id":"2","message":"say hello"}`)
		p.send(`{"type":"ping","id":"1"}`)
		p.want(`{"type":"error","id":"1","message":"id \"1\" belongs to a prompt in flight"}`)
		p.send(`{"type":"get_state","id":"2"}`)
		p.want(`{"type":"error","id":"2","message":"id \"2\" belongs to a follow_up in flight"}`)
		p.send(`{"type":"abort","id":"2"}`)
		p.want(`{"type":"error","id":"2","message":"id \"2\" belongs to a follow_up in flight"}`)
		p.send(`{"type":"abort","id":"1"}`)
		p.want(`{"type":"agent_end","turn_id":"1","stop_reason":"aborted"}`)
		p.want(`{"type":"response","id":"1","cancelled":true}`)
		p.want(`{"type":"message_update"}`)
		p.want(`{"type":"agent_end","turn_id":"2"}`)
		p.want(`{"type":"response","id":"2","ok":true}`)
		p.send(`{"type":"ping","id":"1"}`)
		p.want(`{"type":"response","id":"1","ok":true}`)
		p.stdin.Close()
		if err := <-p.done; err != nil {
			t.Error(err)
		}
	})
}
