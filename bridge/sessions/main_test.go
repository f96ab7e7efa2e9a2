package sessions_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"nexus.internal/bridge/sessions"
	"nexus.internal/protocol"
	"nexus.internal/protocol/transcript"
	"nexus.internal/supervisor"
	"nexus.internal/supervisor/store"
)

// changerArg makes the test's program one that changes sessions until it is
// killed.
const changerArg = "change-sessions"

func TestMain(m *testing.M) {
	if len(os.Args) == 4 && os.Args[1] == changerArg {
		changeOnAndOn(os.Args[2], os.Args[3])
	}
	os.Exit(m.Run())
}

var begun = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// save writes a session of that many messages, with everything that may belong
// to one.
func save(t testing.TB, c *sessions.Catalogue, id string, messages int, settings transcript.Settings) {
	t.Helper()
	settings.At = begun
	records := []transcript.Record{
		transcript.Header{Version: 1, SessionID: "id-" + id, Name: id, CreatedAt: begun}, settings,
	}
	for i := range messages {
		records = append(records, transcript.Message{Message: protocol.Message{Role: protocol.RoleUser, Content: fmt.Sprint(i), TurnID: "1", At: begun}})
	}
	var data []byte
	for _, r := range records {
		line, err := transcript.Append(data, r)
		if err != nil {
			t.Fatal(err)
		}
		data = append(line, '\n')
	}
	write(t, c.Path(id), string(data))
}

func write(t testing.TB, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// beside is the path of what belongs to a session and has that suffix.
func beside(c *sessions.Catalogue, id, suffix string) string {
	return strings.TrimSuffix(c.Path(id), ".jsonl") + suffix
}

// image is a file beside a session, and kept the store of what else belongs to it.
func image(c *sessions.Catalogue, id string) string {
	return beside(c, id, ".files/"+strings.Repeat("0a", 32))
}

func kept(c *sessions.Catalogue) store.Store {
	return sessions.Local(filepath.Dir(c.Dir("named")), true, nil)
}

// saveParts saves something of each kind that belongs to a session: an image, an account, a
// request and an event.
func saveParts(t testing.TB, c *sessions.Catalogue, id, text string) {
	t.Helper()
	write(t, image(c, id), text)
	s := kept(c)
	defer s.Close()
	r, err := s.Open(id, true)
	if err != nil {
		t.Fatal(err)
	}
	r.Append(supervisor.Event{Seq: 1, Type: "note", Data: fmt.Appendf(nil, `{"type":"note","text":%q}`, text)})
	if err := errors.Join(r.Accept(text, [32]byte{}), r.Close(), s.SetAccount(id, &store.Account{Parent: text})); err != nil {
		t.Fatal(err)
	}
}

// there is what of the session's parts there is: the text of each.
func there(t testing.TB, c *sessions.Catalogue, id string) []string {
	t.Helper()
	texts := []string{"-", "-", "-", "-"}
	if text, err := os.ReadFile(image(c, id)); err == nil {
		texts[0] = string(text)
	}
	s := kept(c)
	defer s.Close()
	a, err := s.Account(id)
	if err != nil {
		t.Error(err)
	} else if a != nil {
		texts[1] = a.Parent
	}
	for e, err := range s.Events(id, 0) {
		texts[3] = fmt.Sprint(gjson.GetBytes(e.Data, "text"))
		if err != nil {
			t.Error(err)
		}
	}
	for _, text := range []string{texts[1], texts[3]} {
		if outcome, err := s.Outcome(id, text); err != nil || outcome == supervisor.Crashed {
			texts[2] = text
		}
	}
	return texts
}
