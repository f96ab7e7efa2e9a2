package auth

import (
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"

	"nexus.internal/fixtures"
)

// The keys of a cluster are kept as it was recorded.
func TestRecordedKeys(t *testing.T) {
	recorded := fixtures.Read(t, "cluster/keys-1.json")
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	want := []record{
		{Verifier: verifier(strings.Repeat("ab", 32)), Scope: ScopeFull, Created: at},
		{Verifier: verifier(strings.Repeat("cd", 32)), Scope: ScopeAgent, Name: "dashboard", AgentID: "worker", MayGrant: true, Created: at, Expires: at.AddDate(1, 0, 0)},
	}
	if text, err := json.Marshal(records{want}); err != nil || string(text) != string(recorded) {
		t.Errorf("they are kept as %s, %v; if that is meant, it is another format", text, err)
	}
	got, err := decodeShared(recorded)
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(record{})); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if _, err := decodeRecords([]byte(`{"keys":[{"format":2}]}`), false); err == nil {
		t.Error("the file of a server alone has a key of a later format")
	}
}
