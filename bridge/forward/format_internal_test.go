package forward

import (
	"encoding/base64"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"nexus.internal/bridge/auth"
	"nexus.internal/bridge/rpc"
	"nexus.internal/fixtures"
	"nexus.internal/supervisor"
)

// alone is a machine that asks nobody.
type alone struct{ Machines }

func (alone) Self() string { return "a" }

// A machine says as it was recorded for whom it asks. What it says in a later format is not believed.
func TestRecordedPrincipal(t *testing.T) {
	recorded := fixtures.Read(t, "cluster/principal-1.json")
	by := rpc.Principal{
		Grant:   auth.Grant{ID: "0123456789ab", Name: "dashboard", Scope: auth.ScopeAgent, AgentID: "worker", MayGrant: true},
		Visitor: &rpc.Visitor{Rights: []byte(`{"env":""}`), Waits: []supervisor.Wait{{From: "a", To: "b"}}},
	}
	r := &http.Request{Header: http.Header{}}
	NewClient(alone{}).sign(r, by, "1")
	if text, err := base64.StdEncoding.DecodeString(r.Header.Get(principalHeader)); err != nil || string(text) != string(recorded) {
		t.Errorf("it is told as %s, %v; if that is meant, it is another format", text, err)
	}
	by.Visitor = nil // as it is with a key
	withKey := strings.Replace(string(recorded), `,"visitor":{"rights":{"env":""},"waits":[{"from":"a","to":"b"}]}`, "", 1)
	r.Header.Set(principalHeader, base64.StdEncoding.EncodeToString([]byte(withKey)))
	if machine, got, err := From(r.Header); err != nil || machine != "a" || cmp.Diff(by.Grant, got.Grant) != "" {
		t.Errorf("it is read as %+v of %s, %v", got, machine, err)
	}
	old := rpc.Principal{Grant: auth.Grant{ID: "0123456789ab", Scope: auth.ScopeFull, Expires: time.Now().UTC()}} // the other machine refuses it what it does here
	NewClient(alone{}).sign(r, old, "1")
	if _, got, err := From(r.Header); err != nil || !got.Grant.Replaced() || !got.Grant.Expires.Equal(old.Grant.Expires) {
		t.Errorf("a key that was replaced is read as %+v, %v", got, err)
	}
	r.Header.Set(principalHeader, base64.StdEncoding.EncodeToString([]byte(strings.Replace(withKey, "{", `{"format":2,`, 1))))
	if _, got, err := From(r.Header); err == nil || !strings.Contains(err.Error(), "has format 2, and this program reads 1: upgrade it") {
		t.Errorf("of a later format: %+v, %v", got, err)
	}
}
