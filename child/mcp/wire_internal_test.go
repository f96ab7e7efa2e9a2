package mcp

import "testing"

// What is an answer has its result, also where that is an empty object, and its id, also where that is an empty text: without them, it is none.
func TestAnswersAreWhole(t *testing.T) {
	c := &client{}
	for asked, want := range map[string]string{
		`"q-ping"`: `{"jsonrpc":"2.0","id":"q-ping","result":{}}`,
		`""`:       `{"jsonrpc":"2.0","id":"","result":{}}`,
		`7`:        `{"jsonrpc":"2.0","id":7,"result":{}}`,
	} {
		line, err := c.answer(incoming{ID: []byte(asked), Method: "ping"}).encode()
		if err != nil || string(line) != want {
			t.Errorf("a ping is answered by %s, %v; want %s", line, err, want)
		}
	}
	if line, err := (outgoing{Method: "notifications/initialized"}).encode(); err != nil || string(line) != `{"jsonrpc":"2.0","method":"notifications/initialized"}` {
		t.Errorf("a notification is %s, %v", line, err)
	}
}
