package bridge

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/auth"
	"nexus.internal/bridge/rpc"
	"nexus.internal/protocol"
)

// rotateKey puts another full key in the place of the one that there is.
func (s *Server) rotateKey(_ context.Context, c *rpc.Call, p api.RotateKeyParams) (api.RotateKeyResult, error) {
	now, err := s.o.Keys.Rotate(time.Duration(protocol.Value(p.GraceSeconds)) * time.Second)
	c.Note("key_id", now.ID)
	if err != nil {
		return api.RotateKeyResult{}, err
	}
	return api.RotateKeyResult{Rotated: true, KeyID: now.ID, KeyFile: s.o.Keys.Path()}, nil
}

func (s *Server) createKey(_ context.Context, c *rpc.Call, p api.CreateKeyParams) (api.CreateKeyResult, error) {
	g := auth.Grant{Scope: auth.Scope(p.Scope), AgentID: protocol.Value(p.AgentID), MayGrant: protocol.Value(p.MayGrant), Name: protocol.Value(p.Name)}
	if p.ExpiresSeconds != nil {
		g.Expires = time.Now().Add(time.Duration(*p.ExpiresSeconds) * time.Second)
	}
	key, made, err := s.o.Keys.Add(g)
	if err != nil {
		return api.CreateKeyResult{}, err
	}
	c.Note("key_id", made.ID)
	return api.CreateKeyResult{Key: key.Reveal(), KeyInfo: keyInfo(made)}, nil
}

func (s *Server) listKeys(context.Context, *rpc.Call, api.None) (api.ListKeysResult, error) {
	result := api.ListKeysResult{Keys: []api.KeyInfo{}}
	for _, g := range s.o.Keys.List() {
		result.Keys = append(result.Keys, keyInfo(g))
	}
	return result, nil
}

func (s *Server) revokeKey(_ context.Context, _ *rpc.Call, p api.RevokeKeyParams) (api.RevokeKeyResult, error) {
	revoked, err := s.o.Keys.Revoke(p.KeyID)
	return api.RevokeKeyResult{Revoked: revoked, KeyID: p.KeyID}, err
}

// createPageCode makes a code that the page gives for the full key.
func (s *Server) createPageCode(_ context.Context, c *rpc.Call, _ api.None) (api.CreatePageCodeResult, error) {
	code := s.codes.Make(c.By.Valid)
	return api.CreatePageCodeResult{
		Code: code, URL: "http://" + s.o.Addr + "/#code=" + code, ExpiresInSeconds: uint64(auth.CodeLife / time.Second),
	}, nil
}

// pageKey answers POST /page/key: the full key for a code (SPEC §6.11).
func (s *Server) pageKey(x *exchange) {
	scheme, code, _ := strings.Cut(strings.TrimSpace(x.r.Header.Get("Authorization")), " ")
	if !strings.EqualFold(scheme, "Code") || !s.codes.Use(code) {
		s.refuse(x, wrongCode)
		return
	}
	body, err := json.Marshal(struct {
		Key string `json:"key"`
	}{s.o.Keys.Key().Reveal()})
	if err != nil {
		s.fail(x, err)
		return
	}
	s.answer(x, http.StatusOK, body)
}

func keyInfo(g auth.Grant) api.KeyInfo {
	info := api.KeyInfo{
		KeyID: g.ID, Scope: string(g.Scope), AgentID: known(g.AgentID), MayGrant: g.MayGrant, Name: known(g.Name),
		CreatedAt: g.Created.UTC().Truncate(time.Millisecond).Format(time.RFC3339Nano),
	}
	if !g.Expires.IsZero() {
		info.ExpiresAt = known(g.Expires.UTC().Truncate(time.Millisecond).Format(time.RFC3339Nano))
	}
	return info
}
