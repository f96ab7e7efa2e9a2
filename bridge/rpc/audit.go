package rpc

import (
	"maps"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"go.uber.org/zap"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/auth"
	"nexus.internal/bridge/logfile"
	"nexus.internal/protocol/jsonrpc"
	"nexus.internal/protocol/redact"
	"nexus.internal/protocol/textcut"
)

// Bounds of a parameter in an audit line, and of a rule, in bytes.
const (
	maxAuditParam = 256
	maxAuditRule  = 4 << 10
)

// statusBegun is the status of the line that comes before the deed: a server that is killed
// leaves it behind.
const statusBegun = "begun"

// auditLine is one line of the audit log (SPEC §6.6).
type auditLine struct {
	Timestamp string    `json:"timestamp"`
	Level     string    `json:"level"`
	Message   string    `json:"message"`
	Data      auditData `json:"data"`
	RequestID string    `json:"request_id,omitzero"`
	By        auditBy   `json:"by"`
	Agent     string    `json:"agent,omitzero"`
}

type auditData struct {
	Method string            `json:"method"`
	Status string            `json:"status"`
	Code   int               `json:"code,omitzero"`
	Params map[string]string `json:"params"`
	// Rules are parameters as they were given; the beginning of the JSON, as a string, if it
	// is too long.
	Rules map[string]jsontext.Value `json:"rules,omitzero"`
	// For is the method on whose behalf a call was made, and Plan the run.
	For  string `json:"for,omitzero"`
	Plan string `json:"plan_run_id,omitzero"`
}

// auditBy is who asked: a key, or an agent by a host call.
type auditBy struct {
	Key         string `json:"key,omitzero"`
	KeyName     string `json:"key_name,omitzero"`
	Agent       string `json:"agent,omitzero"`
	Incarnation uint64 `json:"incarnation,omitzero"`
}

// OnBehalf audits what begins now, which another method says and c is the reason for, as a call
// of its own. params are parameters of ours. end is given the error with which that ends.
func (c *Call) OnBehalf(method string, params any) (end func(error)) {
	text, err := json.Marshal(params)
	if err != nil {
		panic("rpc: parameters of our own: " + err.Error())
	}
	made := &Call{
		Request: jsonrpc.Request{Method: method, Params: text}, By: c.By, RequestID: c.RequestID,
		OnBehalfOf: c.Request.Method, PlanRun: c.PlanRun,
	}
	c.router.writeAudit(made, statusBegun, 0)
	return func(err error) {
		status, code := "success", jsonrpc.Code(0)
		if err != nil {
			status, code = "error", ToError(err).Err.Code
		}
		c.router.audit(made, status, code)
	}
}

// audit records a call that is over, whatever became of it. Its line is on the disk
// then.
func (r *Router) audit(c *Call, status string, code jsonrpc.Code) {
	if !r.writeAudit(c, status, code) {
		return
	}
	if err := c.audit.Sync(); err != nil {
		r.o.Metrics.Unaudited()
		r.o.Log.Error("not audited", zap.Error(err))
	}
}

// writeAudit writes a line, and reports whether there is one.
func (r *Router) writeAudit(c *Call, status string, code jsonrpc.Code) bool {
	m, ok := api.Find(c.Request.Method)
	if r.o.Audit == nil || !ok || m.Effect == api.Reads || m.Unaudited {
		return false
	}
	texts, rules := c.audited(m)
	line := auditLine{
		Timestamp: time.Now().Format(time.RFC3339Nano), Level: "info", Message: "audit",
		Data: auditData{
			Method: m.Name, Status: status, Code: int(code), Params: texts, For: c.OnBehalfOf, Plan: c.PlanRun,
		},
		RequestID: c.RequestID, Agent: c.Agent,
		By: auditBy{Key: c.By.Grant.ID, KeyName: c.By.Grant.Name},
	}
	if status == statusBegun || c.audit != nil { // else it was refused: its rules hold for nobody
		line.Data.Rules = rules
	}
	if c.By.Agent != nil {
		line.By = auditBy{Agent: c.By.Agent.AgentID, Incarnation: c.By.Agent.Incarnation}
	}
	text, err := json.Marshal(line, json.Deterministic(true))
	text = []byte(redact.Keys(string(text)))
	if c.audit == nil {
		c.audit = r.auditLog(c.By, 2*len(text)) // the line of its end comes too
	}
	if err == nil {
		err = c.audit.Write(append(text, '\n'))
	}
	if err != nil {
		r.o.Metrics.Unaudited()
		r.o.Log.Error("not audited", zap.Error(err), zap.ByteString("line", text))
	}
	return err == nil
}

// auditLog is the log for a principal that is about to write n bytes.
func (r *Router) auditLog(by Principal, n int) *logfile.Log {
	if name := r.limited(by); name != "" {
		return r.o.Audit.Limited(name, n)
	}
	return r.o.Audit.Full()
}

// limited names a principal that has but a share of what all callers have; "" for a full key, which has
// all. Agents that one agent created, and those that these created, are one principal with it: else an
// agent would have as much as it creates agents.
func (r *Router) limited(by Principal) string {
	switch {
	case by.Agent != nil:
		return "agent " + r.o.Access.Root(by.Agent.AgentID)
	case by.Grant.Scope != auth.ScopeFull:
		return "key " + by.Grant.ID
	default:
		return ""
	}
}

// Limited names the caller if it has but a share of what all callers have; "" for a full key.
func (c *Call) Limited() string { return c.router.limited(c.By) }

// audited are the parameters of a call that its row lets a line have: the texts, with what
// its handler noted, and the rules, nil if it gives none.
func (c *Call) audited(m api.Method) (texts map[string]string, rules map[string]jsontext.Value) {
	var given map[string]jsontext.Value
	if err := json.Unmarshal(c.Request.Params, &given); err != nil {
		given = nil // parameters by position, of a call that was refused
	}
	texts = map[string]string{}
	for _, a := range m.Audit {
		v, there := given[a.Name]
		switch {
		case !there:
		case !a.Rule:
			if text, err := jsontext.AppendUnquote(nil, v); err == nil {
				texts[a.Name] = textcut.Head(string(text), maxAuditParam)
			}
		default:
			if len(v) > maxAuditRule {
				v, _ = jsontext.AppendQuote(nil, textcut.Head(string(v), maxAuditRule)) // it is UTF-8, like all that was asked
			}
			if rules == nil {
				rules = map[string]jsontext.Value{}
			}
			rules[a.Name] = v
		}
	}
	maps.Copy(texts, c.facts)
	return texts, rules
}
