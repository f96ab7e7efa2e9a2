package rpc

import (
	"maps"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/tidwall/gjson"
	"go.uber.org/zap"

	"nexus.internal/bridge/api"
	"nexus.internal/protocol/jsonrpc"
	"nexus.internal/protocol/redact"
	"nexus.internal/protocol/textcut"
)

// auditParams are the parameters that an audit line has, where a call has them: they say
// what it is about, and none is made to hold a text or a secret.
var auditParams = []string{
	"agent_id", "parent_agent_id", "preset", "cwd", "default_cwd", "model", "request_id", "decision", "session_name", "src_session", "dest_session",
	"old_name", "new_name", "scope", "name", "key_id", "server", "approvals", "if_exists",
}

// auditRules are the parameters that say what an agent may do, and are no strings. An
// audit line has them as they were given.
var auditRules = []string{
	"disabled_tools", "allowed_paths", "write_paths", "blocked_paths", "tools", "allowed_write_paths", "disable_tools", "limits",
}

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
	// Rules are the parameters of auditRules; the beginning of the JSON, as a string, where
	// that is too long.
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

// OnBehalf runs do, which does what another method says on behalf of c, and audits that as a
// call of its own. params are parameters of ours.
func (c *Call) OnBehalf(method string, params any, do func() error) error {
	text, err := json.Marshal(params)
	if err != nil {
		panic("rpc: parameters of our own: " + err.Error())
	}
	made := &Call{
		Request: jsonrpc.Request{Method: method, Params: text}, By: c.By, RequestID: c.RequestID,
		OnBehalfOf: c.Request.Method, PlanRun: c.PlanRun,
	}
	c.router.record(made, statusBegun, 0)
	err = do()
	status, code := "success", jsonrpc.Code(0)
	if err != nil {
		status, code = "error", ToError(err).Err.Code
	}
	c.router.audit(made, status, code)
	return err
}

// audit records a call that is over, whatever became of it. Its line is on the disk
// then.
func (r *Router) audit(c *Call, status string, code jsonrpc.Code) {
	if !r.record(c, status, code) {
		return
	}
	if err := r.o.Audit.Sync(); err != nil {
		r.o.Metrics.Unaudited()
		r.o.Log.Error("not audited", zap.Error(err))
	}
}

// record writes a line, and reports whether there is one.
func (r *Router) record(c *Call, status string, code jsonrpc.Code) bool {
	m, ok := api.Find(c.Request.Method)
	if r.o.Audit == nil || !ok || m.Effect == api.Reads || m.Unaudited {
		return false
	}
	line := auditLine{
		Timestamp: time.Now().Format(time.RFC3339Nano), Level: "info", Message: "audit",
		Data: auditData{
			Method: m.Name, Status: status, Code: int(code), Params: c.auditParams(), Rules: c.auditRules(), For: c.OnBehalfOf, Plan: c.PlanRun,
		},
		RequestID: c.RequestID, Agent: c.Agent,
		By: auditBy{Key: c.By.Grant.ID, KeyName: c.By.Grant.Name},
	}
	if c.By.Agent != nil {
		line.By = auditBy{Agent: c.By.Agent.AgentID, Incarnation: c.By.Agent.Incarnation}
	}
	text, err := json.Marshal(line, json.Deterministic(true))
	text = []byte(redact.Keys(string(text)))
	if err == nil {
		err = r.o.Audit.Write(append(text, '\n'))
	}
	if err != nil {
		r.o.Metrics.Unaudited()
		r.o.Log.Error("not audited", zap.Error(err), zap.ByteString("line", text))
	}
	return err == nil
}

// auditParams are the parameters of a call that say what it is about, and what its handler
// noted.
func (c *Call) auditParams() map[string]string {
	out := map[string]string{}
	params := gjson.ParseBytes(c.Request.Params)
	for _, name := range auditParams {
		if v := params.Get(name); v.Type == gjson.String {
			out[name] = textcut.Head(v.Str, maxAuditParam)
		}
	}
	maps.Copy(out, c.facts)
	return out
}

// auditRules are what a call says of what an agent may do; nil if nothing.
func (c *Call) auditRules() map[string]jsontext.Value {
	var out map[string]jsontext.Value
	params := gjson.ParseBytes(c.Request.Params)
	for _, name := range auditRules {
		v := params.Get(name)
		if !v.Exists() {
			continue
		}
		rule := jsontext.Value(v.Raw)
		if len(rule) > maxAuditRule {
			rule, _ = jsontext.AppendQuote(nil, textcut.Head(v.Raw, maxAuditRule)) // it is UTF-8, like all that was asked
		}
		if out == nil {
			out = map[string]jsontext.Value{}
		}
		out[name] = rule
	}
	return out
}
