package bridge

import (
	"go.uber.org/zap"
)

// Waiting is how many requests hold the name of an agent or wait for it.
func (s *Server) Waiting(id string) int {
	return s.agents.Waiting(id)
}

// StrangerLog lets a test see a whole period without a server.
type StrangerLog struct{ l *strangerLog }

// NewStrangerLog returns one that writes to log.
func NewStrangerLog(log *zap.Logger) StrangerLog { return StrangerLog{newStrangerLog(log)} }

// Admit is asked for each request without a good key.
func (s StrangerLog) Admit(route, status string) bool { return s.l.admit(route, status) }

// Close ends the last period.
func (s StrangerLog) Close() { s.l.close() }
