package rpc

import (
	"time"

	"go.uber.org/zap"

	"nexus.internal/bridge/api"
	"nexus.internal/protocol/jsonrpc"
	"nexus.internal/protocol/textcut"
	"nexus.internal/protocol/tracing"
)

// maxLoggedID bounds a request's JSON-RPC id in the log, in bytes.
const maxLoggedID = 128

// ClipName bounds a name as a caller wrote it.
func ClipName(name string) string { return textcut.Clip(name, 64) }

// Record is how a call ended, for a log: the method and the ids, and never the parameters
// or the answer.
type Record struct {
	Method, ID  string
	Took        time.Duration
	Code        jsonrpc.Code  // 0 for none
	Kind        api.ErrorKind // of an error; "" for none
	Agent       string
	Incarnation uint64
	// Left says that the caller left before the answer.
	Left bool
	// Fault is what went wrong in the server; nil for nothing.
	Fault error
	// Status is that of HTTP, unless the call is part of a batch; 0 if the caller left.
	Status int
	// Moved says which machine has the agent by now; nil unless that is why it failed.
	Moved *MovedError
	Trace tracing.Parent // of the call; zero for none

	err      *jsonrpc.Error
	byClient bool
}

// Refused is the record of what was answered by an error before it was a call.
func Refused(e *jsonrpc.Error) Record {
	return Record{Code: e.Code, Kind: api.ErrorKind(e.Data.Type), err: e}
}

// of completes the record of a call.
func (r *Record) of(c *Call, took time.Duration) {
	id := c.Request.ID.String()
	if c.By.Agent != nil {
		id = c.By.Agent.TurnID
	}
	r.Method, r.ID, r.Took = ClipName(c.Request.Method), textcut.Head(id, maxLoggedID), took
	r.Agent, r.Incarnation, r.byClient = c.Agent, c.Incarnation, c.By.Agent == nil
	if r.err != nil {
		r.Code, r.Kind = r.err.Code, api.ErrorKind(r.err.Data.Type)
	}
}

// Outcome is success, error, "client left" or "caller left".
func (r Record) Outcome() string {
	switch {
	case r.Left && r.byClient:
		return "client left"
	case r.Left:
		return "caller left"
	case r.Code != 0:
		return "error"
	default:
		return "success"
	}
}

// mostData is how many members data has, with those that others add.
const mostData = 12

// Fields are those of the member data of a log's line; outcome is Outcome, or what happened
// in its place.
func (r Record) Fields(outcome string) []zap.Field {
	data := append(make([]zap.Field, 0, mostData), zap.String("method", r.Method), zap.String("id", r.ID),
		zap.Float64("duration_ms", milliseconds(r.Took)), zap.String("status", outcome))
	if r.Code != 0 {
		data = append(data, zap.Int("code", int(r.Code)), zap.String("type", string(r.Kind)))
	}
	return data
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// finish counts and audits a call that is over, and ends its span.
func (r *Router) finish(c *Call, record Record, end tracing.End) {
	from, fault := "client", string(record.Kind)
	if c.By.Agent != nil {
		from = "agent"
	}
	if record.Left {
		fault = record.Outcome()
	}
	r.o.Metrics.Call(from, c.Request.Method, int(record.Code), record.Took)
	if fault == "" {
		end("")
	} else {
		end(fault, tracing.Int("rpc.response.status_code", int64(record.Code)))
	}
	r.audit(c, record.Outcome(), record.Code)
}
