package bridge

import (
	"time"

	"github.com/go-json-experiment/json"
	"github.com/tidwall/gjson"
	"go.uber.org/zap"

	"nexus.internal/bridge/api"
	"nexus.internal/protocol/jsonrpc"
)

// conversation are the methods that change something and are not audited: what
// agents are told is in their sessions.
var conversation = map[string]bool{"send": true, "cancel": true}

// audited are the parameters that an audit line has, where a call has them: they say
// what it is about, and none is made to hold a text or a secret.
var audited = []string{
	"agent_id", "parent_agent_id", "preset", "cwd", "model", "request_id", "decision", "session_name", "src_session", "dest_session",
	"old_name", "new_name", "scope", "name", "key_id", "server",
}

// maxAudited bounds a parameter in an audit line, in bytes.
const maxAudited = 256

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
}

// auditor is who asked: a key, or an agent by a host call.
type auditor struct {
	Key         string `json:"key,omitzero"`
	KeyName     string `json:"key_name,omitzero"`
	Agent       string `json:"agent,omitzero"`
	Incarnation uint64 `json:"incarnation,omitzero"`
}

// audit records a call that is over, if it is of a method that changes something,
// whatever became of it.
func (s *Server) audit(c *call, requestID, status string, code jsonrpc.Code) {
	m, ok := api.Find(c.request.Method)
	if s.o.Audit == nil || !ok || m.Effect == api.Reads || conversation[m.Name] {
		return
	}
	line := auditLine{
		Timestamp: time.Now().Format(time.RFC3339Nano), Level: "info", Message: "audit",
		Data:      auditData{Method: m.Name, Status: status, Code: int(code), Params: c.told()},
		RequestID: requestID, Agent: c.id,
		By: auditor{Key: c.pass.grant.ID, KeyName: c.pass.grant.Name},
	}
	if c.from != nil {
		line.By = auditor{Agent: c.from.AgentID, Incarnation: c.from.Incarnation}
	}
	text, err := json.Marshal(line, json.Deterministic(true))
	if err == nil {
		err = s.o.Audit.Write(append(text, '\n'))
	}
	if err != nil {
		s.metrics.Unaudited()
		s.log.Error("not audited", zap.Error(err), zap.ByteString("line", text))
	}
}

// told are the parameters of a call that say what it is about, and what its
// handler noted.
func (c *call) told() map[string]string {
	out := map[string]string{}
	params := gjson.ParseBytes(c.request.Params)
	for _, name := range audited {
		if v := params.Get(name); v.Type == gjson.String {
			out[name] = head(v.Str, maxAudited)
		}
	}
	if c.tool != "" {
		out["tool"] = c.tool
	}
	return out
}
