package pi

import (
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"nexus.internal/protocol"
)

// What an extension asks is shown whole, however long its message is: at its end may be what runs.
func TestQuestion(t *testing.T) {
	message := "run: " + strings.Repeat("#", 64<<10) + "\\nrm -r /"
	q, err := question("t", gjson.Parse(`{"id":"7","method":"confirm","title":"Allow?","message":"`+message+`"}`))
	if err != nil || !q.Runs || q.Action != protocol.ActionExternal || q.TurnID != "t" || q.ID != "7" || !strings.HasPrefix(q.Summary, "Allow? run: ##") {
		t.Errorf("%v: %s %v %+v", err, q.Summary, q.Runs, q.Call.ID)
	}
	if got := gjson.GetBytes(q.Input, "message").Str; !strings.HasSuffix(got, "#\nrm -r /") || len(got) < 64<<10 {
		t.Errorf("its end is %q", got[max(0, len(got)-20):])
	}
}
