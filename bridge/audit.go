package bridge

import (
	"context"
	"errors"
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
	"nexus.internal/supervisor"
)

// audited are the parameters that an audit line has, where a call has them: they say
// what it is about, and none is made to hold a text or a secret.
var audited = []string{
	"agent_id", "parent_agent_id", "preset", "cwd", "default_cwd", "model", "request_id", "decision", "session_name", "src_session", "dest_session",
	"old_name", "new_name", "scope", "name", "key_id", "server", "approvals", "if_exists",
}

// ruled are the parameters that say what an agent may do, and are no strings. An
// audit line has them as they were given.
var ruled = []string{
	"disabled_tools", "allowed_paths", "write_paths", "blocked_paths", "tools", "allowed_write_paths", "disable_tools", "limits",
}

// Bounds of a parameter in an audit line, and of a rule, in bytes.
const (
	maxAudited = 256
	maxRuled   = 4 << 10
)

// statusBegun is the status of the line that comes before the deed.
const statusBegun = "begun"

// auditLine is one line of the audit log (SPEC §6.6).
type auditLine struct {
	Timestamp string    `json:"timestamp"`
	Level     string    `json:"level"`
	Message   string    `json:"message"`
	Data      auditData `json:"data"`
	RequestID string    `json:"request_id,omitzero"`
	By        auditor   `json:"by"`
	Agent     string    `json:"agent,omitzero"`
}

type auditData struct {
	Method string            `json:"method"`
	Status string            `json:"status"`
	Code   int               `json:"code,omitzero"`
	Params map[string]string `json:"params"`
	// Rules are the parameters of ruled; the beginning of the JSON, as a string, where
	// that is too long.
	Rules map[string]jsontext.Value `json:"rules,omitzero"`
	// For is the method for whose sake a call was made, and Plan the run.
	For  string `json:"for,omitzero"`
	Plan string `json:"plan_run_id,omitzero"`
}

// auditor is who asked: a key, or an agent by a host call.
type auditor struct {
	Key         string `json:"key,omitzero"`
	KeyName     string `json:"key_name,omitzero"`
	Agent       string `json:"agent,omitzero"`
	Incarnation uint64 `json:"incarnation,omitzero"`
}

// intend records a call that is about to be carried out, if it is of a method that
// changes something: so that a deed has a line also where its server is killed
// before it is told.
func (s *Server) intend(c *call) { s.record(c, statusBegun, 0) }

// audit records a call that is over, whatever became of it. Its line is on the disk
// then.
func (s *Server) audit(c *call, status string, code jsonrpc.Code) {
	if !s.record(c, status, code) {
		return
	}
	if err := s.o.Audit.Sync(); err != nil {
		s.metrics.Unaudited()
		s.log.Error("not audited", zap.Error(err))
	}
}

// record writes a line, and reports whether there is one.
func (s *Server) record(c *call, status string, code jsonrpc.Code) bool {
	m, ok := api.Find(c.request.Method)
	if s.o.Audit == nil || !ok || m.Effect == api.Reads || m.Unaudited {
		return false
	}
	line := auditLine{
		Timestamp: time.Now().Format(time.RFC3339Nano), Level: "info", Message: "audit",
		Data:      auditData{Method: m.Name, Status: status, Code: int(code), Params: c.told(), Rules: c.rules(), For: c.sake, Plan: c.plan},
		RequestID: c.requestID, Agent: c.id,
		By: auditor{Key: c.pass.grant.ID, KeyName: c.pass.grant.Name},
	}
	if c.from != nil {
		line.By = auditor{Agent: c.from.AgentID, Incarnation: c.from.Incarnation}
	}
	text, err := json.Marshal(line, json.Deterministic(true))
	text = []byte(redact.Keys(string(text)))
	if err == nil {
		err = s.o.Audit.Write(append(text, '\n'))
	}
	if err != nil {
		s.metrics.Unaudited()
		s.log.Error("not audited", zap.Error(err), zap.ByteString("line", text))
	}
	return err == nil
}

// told are the parameters of a call that say what it is about, and what its
// handler noted.
func (c *call) told() map[string]string {
	out := map[string]string{}
	params := gjson.ParseBytes(c.request.Params)
	for _, name := range audited {
		if v := params.Get(name); v.Type == gjson.String {
			out[name] = textcut.Head(v.Str, maxAudited)
		}
	}
	maps.Copy(out, c.noted)
	return out
}

// rules are what a call says of what an agent may do; nil if nothing.
func (c *call) rules() map[string]jsontext.Value {
	var out map[string]jsontext.Value
	params := gjson.ParseBytes(c.request.Params)
	for _, name := range ruled {
		v := params.Get(name)
		if !v.Exists() {
			continue
		}
		rule := jsontext.Value(v.Raw)
		if len(rule) > maxRuled {
			rule, _ = jsontext.AppendQuote(nil, textcut.Head(v.Raw, maxRuled)) // it is UTF-8, like all that was asked
		}
		if out == nil {
			out = map[string]jsontext.Value{}
		}
		out[name] = rule
	}
	return out
}

// note adds what a handler found out to the audit line of its call.
func (c *call) note(name, value string) {
	if c.noted == nil {
		c.noted = map[string]string{}
	}
	c.noted[name] = value
}

// on is a call of another method that is made for the sake of this one.
func (c *call) on(method string, params any) *call {
	text, err := json.Marshal(params)
	if err != nil {
		panic("bridge: parameters of our own: " + err.Error())
	}
	return &call{
		request: jsonrpc.Request{Method: method, Params: text}, pass: c.pass, from: c.from, requestID: c.requestID,
		sake: c.request.Method, plan: c.plan,
	}
}

// createFor creates an agent that nobody asked for by name, and records that.
func (s *Server) createFor(ctx context.Context, c *call, p api.CreateAgentParams) (*supervisor.Agent, error) {
	made := c.on("create_agent", p)
	s.intend(made)
	a, _, err := s.create(ctx, c, p)
	s.auditEnd(made, err)
	return a, err
}

// destroyFor destroys an agent that nobody asked for by name, and records that; it
// is no error if there is none.
func (s *Server) destroyFor(ctx context.Context, c *call, id string) error {
	ended := c.on("destroy_agent", api.AgentIDParams{AgentID: id})
	s.intend(ended)
	err := s.destroy(ctx, c, id)
	if errors.Is(err, supervisor.ErrNotFound) {
		err = nil
	}
	s.auditEnd(ended, err)
	return err
}

// auditEnd records a call that ended with err, which is told to whoever wanted it.
func (s *Server) auditEnd(c *call, err error) {
	if err != nil {
		err = explain(err).err
	}
	status, code := outcome(err)
	s.audit(c, status, code)
}
