package methods

import (
	"cmp"
	"context"
	"time"

	"nexus.internal/bridge/agents"
	"nexus.internal/bridge/api"
	"nexus.internal/bridge/auth"
	"nexus.internal/bridge/rpc"
	"nexus.internal/protocol"
)

// checkNotReplaced refuses a full key that rotate_key has replaced and that is in its grace:
// what it made would be good when it is not any more.
func checkNotReplaced(c *rpc.Call) error {
	if c.By.Grant.Replaced() {
		return api.Denied("rotate_key has replaced this key, so it makes no others until it ends; the server's key file has the new one")
	}
	return nil
}

func (m *keyMethods) rotate(_ context.Context, c *rpc.Call, p api.RotateKeyParams) (api.RotateKeyResult, error) {
	if err := checkNotReplaced(c); err != nil {
		return api.RotateKeyResult{}, err
	}
	now, err := m.keys.Rotate(time.Duration(protocol.Value(p.GraceSeconds)) * time.Second)
	c.Note("key_id", now.ID)
	if err != nil {
		return api.RotateKeyResult{}, err
	}
	return api.RotateKeyResult{Rotated: true, KeyID: now.ID, KeyFile: m.keys.Path()}, nil
}

func (m *keyMethods) create(_ context.Context, c *rpc.Call, p api.CreateKeyParams) (api.CreateKeyResult, error) {
	if err := checkNotReplaced(c); err != nil {
		return api.CreateKeyResult{}, err
	}
	g := auth.Grant{Scope: auth.Scope(p.Scope), AgentID: protocol.Value(p.AgentID), MayGrant: protocol.Value(p.MayGrant), Name: protocol.Value(p.Name)}
	if p.ExpiresSeconds != nil {
		g.Expires = time.Now().Add(time.Duration(*p.ExpiresSeconds) * time.Second)
	}
	key, made, err := m.keys.Add(g)
	if err != nil {
		return api.CreateKeyResult{}, err
	}
	c.Note("key_id", made.ID)
	return api.CreateKeyResult{Key: key.Reveal(), KeyInfo: keyInfo(made)}, nil
}

func (m *keyMethods) list(context.Context, *rpc.Call, api.None) (api.ListKeysResult, error) {
	result := api.ListKeysResult{Keys: []api.KeyInfo{}}
	for _, g := range m.keys.List() {
		result.Keys = append(result.Keys, keyInfo(g))
	}
	return result, nil
}

func (m *keyMethods) revoke(_ context.Context, _ *rpc.Call, p api.RevokeKeyParams) (api.RevokeKeyResult, error) {
	revoked, err := m.keys.Revoke(p.KeyID)
	return api.RevokeKeyResult{Revoked: revoked, KeyID: p.KeyID}, err
}

func (m *keyMethods) createPageCode(_ context.Context, c *rpc.Call, _ api.None) (api.CreatePageCodeResult, error) {
	if err := checkNotReplaced(c); err != nil {
		return api.CreatePageCodeResult{}, err
	}
	code := m.codes.Make(c.By.Grant.ID, c.By.Valid)
	return api.CreatePageCodeResult{
		Code: code, URL: cmp.Or(c.Base, "http://"+m.addr) + "/#code=" + code, ExpiresInSeconds: uint64(auth.CodeLife / time.Second),
	}, nil
}

func keyInfo(g auth.Grant) api.KeyInfo {
	info := api.KeyInfo{
		KeyID: g.ID, Scope: string(g.Scope), AgentID: agents.Known(g.AgentID), MayGrant: g.MayGrant, Name: agents.Known(g.Name),
		CreatedAt: g.Created.UTC().Truncate(time.Millisecond).Format(time.RFC3339Nano),
	}
	if !g.Expires.IsZero() {
		info.ExpiresAt = agents.Known(g.Expires.UTC().Truncate(time.Millisecond).Format(time.RFC3339Nano))
	}
	return info
}
