package httpd

import (
	"go.uber.org/zap"
)

// UnauthenticatedLog lets a test see a whole period without a server.
type UnauthenticatedLog struct{ l *unauthenticatedLog }

// NewUnauthenticatedLog returns one that writes to log.
func NewUnauthenticatedLog(log *zap.Logger) UnauthenticatedLog {
	return UnauthenticatedLog{newUnauthenticatedLog(log)}
}

// Admit is asked for each request without a good key.
func (l UnauthenticatedLog) Admit(route, status string) bool { return l.l.admit(route, status) }

// Close ends the last period.
func (l UnauthenticatedLog) Close() { l.l.close() }
