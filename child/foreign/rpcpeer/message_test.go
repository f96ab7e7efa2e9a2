package rpcpeer_test

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"

	"nexus.internal/child/foreign/rpcpeer"
	"nexus.internal/protocol/strict"
)

// FuzzDecode takes any line for a message or for none; an id is one JSON value of the line.
func FuzzDecode(f *testing.F) {
	for _, line := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":[1]}}`, `{"method":"m"}`, `{"id":"x","result":null}`,
		`{"id":1,"error":{"code":-32000,"message":"no","data":{"details":"x"}}}`, `{"id":null,"method":"m"}`, `[{"id":1}]`, `npm notice`, ``,
		`{"method":"\ud83d"}`, `{"id":1,"id":2,"method":"m"}`, `{"id":1.50,"method":"m"}`,
	} {
		f.Add([]byte(line))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		before := bytes.Clone(line)
		method, id, ok := rpcpeer.Decode(line)
		if !bytes.Equal(line, before) {
			t.Fatal("the line was changed")
		}
		if !ok {
			return
		}
		if !utf8.ValidString(method) {
			t.Errorf("method %q", method)
		}
		if id != nil && (strict.Valid(id) != nil || strings.ContainsAny(string(id), "{[")) && id[0] != '"' {
			t.Errorf("id %q", id)
		}
	})
}
