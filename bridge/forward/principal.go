package forward

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/go-json-experiment/json"

	"nexus.internal/bridge/auth"
	"nexus.internal/bridge/rpc"
	"nexus.internal/protocol/format"
	"nexus.internal/supervisor"
)

// The headers by which a machine says for whom it asks. No other listener reads them.
const (
	principalHeader = "X-Nexus-Principal"
	machineHeader   = "X-Nexus-Machine"
)

// principal is an [rpc.Principal] on its way.
type principal struct {
	KeyID    string     `json:"key_id,omitzero"`
	KeyName  string     `json:"key_name,omitzero"`
	Scope    auth.Scope `json:"scope,omitzero"`
	AgentID  string     `json:"agent_id,omitzero"`
	MayGrant bool       `json:"may_grant,omitzero"`
	// Expires is when a full key ends that was replaced.
	Expires time.Time `json:"expires,omitzero"`
	// Of an agent that asks; the others are missing then.
	Caller  *supervisor.Caller `json:"caller,omitzero"`
	Visitor *rpc.Visitor       `json:"visitor,omitzero"`
}

// sign says in a request for whom it is.
func (f *Client) sign(r *http.Request, by rpc.Principal, requestID string) {
	var expires time.Time
	if by.Grant.Replaced() {
		expires = by.Grant.Expires
	}
	text, err := json.Marshal(principal{
		KeyID: by.Grant.ID, KeyName: by.Grant.Name, Scope: by.Grant.Scope, AgentID: by.Grant.AgentID, MayGrant: by.Grant.MayGrant, Expires: expires,
		Caller: by.Agent, Visitor: by.Visitor,
	})
	if err != nil {
		panic("forward: a principal of our own: " + err.Error())
	}
	r.Header.Set(principalHeader, base64.StdEncoding.EncodeToString(text))
	r.Header.Set(machineHeader, f.machines.Self())
	r.Header.Set("X-Request-Id", requestID)
}

// From is the machine that has sent a request, and the principal for whom it asks. It is for requests that came by
// [Machines.Listen] alone. A key's end is that machine's to see to.
func From(h http.Header) (machine string, by rpc.Principal, err error) {
	text, err := base64.StdEncoding.DecodeString(h.Get(principalHeader))
	if err != nil {
		return "", rpc.Principal{}, fmt.Errorf("the header %s: %w", principalHeader, err)
	}
	var p principal
	if err := format.Principal.Decode(text, &p); err != nil {
		return "", rpc.Principal{}, fmt.Errorf("the header %s: %w", principalHeader, err)
	}
	by = rpc.Principal{
		Grant: auth.Grant{ID: p.KeyID, Name: p.KeyName, Scope: p.Scope, AgentID: p.AgentID, MayGrant: p.MayGrant, Expires: p.Expires},
		Valid: context.Background(), Agent: p.Caller, Visitor: p.Visitor,
	}
	if p.Caller != nil {
		by.Grant = auth.Grant{ID: "agent " + p.Caller.AgentID} // for the log; nothing is allowed by it
	}
	if machine = h.Get(machineHeader); machine == "" || by.Grant.ID == "" || (p.Caller == nil) != (p.Visitor == nil) {
		return "", rpc.Principal{}, errors.New("a machine does not say its name, or whose request it is")
	}
	return machine, by, nil
}
