package bridge

import (
	"github.com/go-json-experiment/json/jsontext"
	"go.uber.org/zap"

	"nexus.internal/bridge/api"
)

// JoinBatch lets a test see the bound of a batch's answer without 16 MiB of
// conversation.
var JoinBatch = joinBatch

// AppendEvent lets a test write events that no child of ours would send.
var AppendEvent = appendEvent[string]

// Named gives a test the error of an agent that was destroyed meanwhile.
var Named = named

// Explain gives a test the table of errors: status, code, data.type, message.
func Explain(err error) (status, code int, kind, message string) {
	r := explain(err)
	return r.status, int(r.err.Code), r.err.Data.Type, r.err.Message
}

// SplitTarget gives a test what a host call's parameters are taken apart into,
// for a method of an agent or a global one.
func SplitTarget(scope api.Scope, params jsontext.Value) (target string, rest jsontext.Value, err error) {
	return splitTarget(api.Method{Scope: scope}, params)
}

// Waiting is how many requests hold the name of an agent or wait for it.
func (s *Server) Waiting(id string) int {
	s.locks.mu.Lock()
	defer s.locks.mu.Unlock()
	if l := s.locks.held[id]; l != nil {
		return l.refs
	}
	return 0
}

// StrangerLog lets a test see a whole period without a server.
type StrangerLog struct{ l *strangerLog }

// NewStrangerLog returns one that writes to log.
func NewStrangerLog(log *zap.Logger) StrangerLog { return StrangerLog{newStrangerLog(log)} }

// Admit is asked for each request without a good key.
func (s StrangerLog) Admit(route, status string) bool { return s.l.admit(route, status) }

// Close ends the last period.
func (s StrangerLog) Close() { s.l.close() }
