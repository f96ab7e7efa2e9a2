package sessions_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"nexus.internal/bridge/sessions"
	"nexus.internal/protocol"
	"nexus.internal/protocol/transcript"
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

// parts are the files that belong to a session beside its own.
func parts(c *sessions.Catalogue, id string) []string {
	return []string{beside(c, id, ".files/image"), beside(c, id, ".usage"), beside(c, id, ".outcomes"), beside(c, id, ".events/1")}
}

func saveParts(t testing.TB, c *sessions.Catalogue, id, text string) {
	t.Helper()
	for _, path := range parts(c, id) {
		write(t, path, text)
	}
}

// there is what of the session's parts there is: the text of each.
func there(c *sessions.Catalogue, id string) (texts []string) {
	for _, path := range parts(c, id) {
		text, err := os.ReadFile(path)
		if err != nil {
			text = []byte("-")
		}
		texts = append(texts, string(text))
	}
	return texts
}
