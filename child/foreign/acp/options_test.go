package acp

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/tidwall/gjson"

	"nexus.internal/protocol"
)

// A question is about the files of its input as well as about those that it says it is about: it was decided by these
// alone. One that names more than a question may is a tool of somebody else's.
func TestPathsOfAQuestion(t *testing.T) {
	location := func(path string) string { return `{"path":"` + path + `"}` }
	many := strings.TrimSuffix(strings.Repeat(location("a")+",", 100), ",")
	for i := range 100 {
		many = strings.Replace(many, location("a"), location(fmt.Sprint("/w/", i)), 1)
	}
	for _, tt := range []struct {
		call   string
		action protocol.Action
		paths  []string
	}{
		{`"kind":"read","locations":[` + location("/w/a") + `],"rawInput":{"file_path":"/etc/shadow"}`, protocol.ActionRead, []string{"/w/a", "/etc/shadow"}},
		{`"kind":"edit","content":[{"type":"diff","path":"/etc/passwd"}],"rawInput":{"path":"/w/a"}`, protocol.ActionWrite, []string{"/etc/passwd", "/w/a"}},
		{`"kind":"read","locations":[` + many + `,` + location("/etc/shadow") + `]`, protocol.ActionExternal, nil},
		{`"kind":"read","rawInput":{"text":"a"}`, protocol.ActionExternal, nil},
	} {
		turn := &turn{calls: map[string]*call{}}
		told := gjson.Parse(`{"toolCallId":"1",` + tt.call + `}`)
		turn.merge(told)
		if q := turn.question(told); q.Action != tt.action || !cmp.Equal(q.Paths, tt.paths) {
			t.Errorf("%.90s: got %s of %q, want %s of %q", tt.call, q.Action, q.Paths, tt.action, tt.paths)
		}
	}
}

// A question has as many options as a person reads, however many the program names, and those that the program
// remembers come after those for this once.
func TestOptions(t *testing.T) {
	list := []string{
		`{"optionId":"never","name":"Never","kind":"reject_always"}`, `{"optionId":"no","name":"No","kind":"reject_once"}`,
		`{"optionId":"` + strings.Repeat("x", maxOption+1) + `","name":"long","kind":"allow_once"}`, `{"optionId":"odd","name":"Odd","kind":"maybe"}`,
		`{"optionId":"yes","name":"` + strings.Repeat("y", 2*maxOption) + `","kind":"allow_once"}`,
	}
	for i := range 5000 {
		list = append(list, fmt.Sprintf(`{"optionId":"%d","name":"more","kind":"allow_once"}`, i))
	}
	got := options(gjson.Parse(`{"options":[` + strings.Join(list, ",") + `]}`))
	if len(got) != maxOptions-2 {
		t.Fatalf("%d options", len(got))
	}
	if got[0].ID != "no" || got[1].ID != "yes" || len(got[1].Name) > maxOption || got[len(got)-1].ID != "never" {
		t.Errorf("got %+v, %d bytes of a name, and %+v at the end", got[0], len(got[1].Name), got[len(got)-1])
	}
}
