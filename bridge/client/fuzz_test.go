package client_test

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/tidwall/gjson"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/client"
)

// FuzzAnswer: an answer to a call is a result or one failure that says which of
// the three it is: of the server, of what is no server of ours, or of a result
// that is not as it should be.
func FuzzAnswer(f *testing.F) {
	for _, body := range []string{
		`{"jsonrpc":"2.0","id":1,"result":{"agent_id":"a","url":"/agent/a","restored":true,"message_count":3}}`,
		`{"jsonrpc":"2.0","id":1,"result":{"agent_id":5}}`, `{"jsonrpc":"2.0","id":1,"result":null}`,
		`{"jsonrpc":"2.0","id":null,"error":{"code":-32602,"message":"Agent not found: a","data":{"type":"AGENT_NOT_FOUND","details":"d","recovery_suggestions":["r"]}}}`,
		`{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"m"},"result":{}}`, `{"error":"unauthorized"}`, `[]`, `<html>`, ``,
	} {
		f.Add(200, []byte(body))
	}
	f.Fuzz(func(t *testing.T, status int, body []byte) {
		var result api.CreateAgentResult
		err := client.Decode("create_agent", body, status, &result)
		failure, refused := errors.AsType[*client.RPCError](err)
		switch {
		case err == nil:
			if member := gjson.GetBytes(body, "result.agent_id"); member.Exists() && member.String() != result.AgentID {
				t.Errorf("agent_id is %q, read as %q", member, result.AgentID)
			}
		case refused:
			if !gjson.GetBytes(body, "error").IsObject() || failure.HTTPStatus != status {
				t.Errorf("a failure that the server did not report: %+v", failure)
			}
		case errors.Is(err, client.ErrNotNexus):
			if !strings.HasPrefix(err.Error(), "call create_agent: ") {
				t.Errorf("error %q does not say what was called", err)
			}
		case !strings.HasPrefix(err.Error(), "call create_agent: decode the result: "):
			t.Errorf("error %q", err)
		}
	})
}

// FuzzHealth: only what says that it is nexus is taken for it, and what it says
// of itself is text.
func FuzzHealth(f *testing.F) {
	for _, body := range []string{
		`{"status":"ok","service":"nexus","version":"1"}`, `{"service":"nexus"}`, `{"service":"other"}`, `{"Service":"nexus"}`,
		`{"service":"nexus","service":"other"}`, `{"service":5}`, `nexus`, ``,
	} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		health, ours := client.ReadHealth(body)
		if ours != (health.Service == api.Service) {
			t.Errorf("%q: ours %v, service %q", body, ours, health.Service)
		}
		if ours && (gjson.GetBytes(body, "service").String() != api.Service || !utf8.ValidString(health.Version+health.Status)) {
			t.Errorf("%q is taken for %+v", body, health)
		}
	})
}
