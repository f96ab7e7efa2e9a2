package bridge_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/client"
	"nexus.internal/protocol"
	"nexus.internal/protocol/jsonrpc"
	"nexus.internal/supervisor/supervisortest"
)

// A program that creates its agent each time that it runs finds the agent of its
// last run, if it is as it is asked for; the answer and the audit log say which it was.
func TestCreateOrUse(t *testing.T) {
	r, changes := watched(t, supervisortest.Echo)
	asked := api.CreateAgentParams{
		AgentID: new("trusted"), IfExists: new("use"), Env: &map[string]string{"A": "b"}, Limits: &api.Limits{Tokens: new(uint64(7))},
	}
	for i, want := range []api.CreateAgentResult{
		{AgentID: "trusted", URL: "/agent/trusted"},
		{AgentID: "trusted", URL: "/agent/trusted", Existing: true, MessageCount: new(uint64(0))},
	} {
		got, err := client.Do(r.ctx(), r.client, "", api.CreateAgent, asked)
		if err != nil || got.Existing != want.Existing || got.Restored || got.URL != want.URL || (got.MessageCount == nil) != (want.MessageCount == nil) {
			t.Errorf("create %d: %+v, %v", i, got, err)
		}
	}
	if _, err := client.Do(r.ctx(), r.client, "trusted", api.Send, api.SendParams{Content: "hello"}); err != nil {
		t.Fatal(err)
	}
	again, err := client.Do(r.ctx(), r.client, "", api.CreateAgent, api.CreateAgentParams{
		AgentID: new("trusted"), IfExists: new("use"), InitialMessage: new("more"), WaitForInitialResponse: new(true),
	})
	if err != nil || !again.Existing || protocol.Value(again.MessageCount) != 2 || again.InitialResponse == nil {
		t.Errorf("with a message: %+v, %v", again, err)
	}
	r.save("home/sessions/old.jsonl", []byte(savedText), 1)
	if old, err := client.Do(r.ctx(), r.client, "", api.CreateAgent, api.CreateAgentParams{AgentID: new("old"), IfExists: new("use")}); err != nil || !old.Restored || old.Existing {
		t.Errorf("a saved one: %+v, %v", old, err)
	}
	for _, refused := range []api.CreateAgentParams{{AgentID: new("trusted")}, {AgentID: new("trusted"), IfExists: new("fail")}} {
		_, err := client.Do(r.ctx(), r.client, "", api.CreateAgent, refused)
		wantError(t, err, jsonrpc.CodeInvalidParams, "AGENT_EXISTS", 200)
	}
	var existed []string
	for _, line := range changes() {
		if gjson.Get(line, "data.status").Str == "success" {
			existed = append(existed, gjson.Get(line, "data.params.existed").Str+"/"+gjson.Get(line, "data.params.if_exists").Str)
		}
	}
	if got := strings.Join(existed, " "); got != "/use running/use running/use saved/use" {
		t.Errorf("audited as %s", got)
	}
}

// Nothing that is asked for is silently not so.
func TestUseOfAnAgentThatDiffers(t *testing.T) {
	r := rigged(t, nil)
	r.create("parent")
	made := api.CreateAgentParams{AgentID: new("trusted"), Limits: &api.Limits{Tokens: new(uint64(7))}}
	if _, err := client.Do(r.ctx(), r.client, "", api.CreateAgent, made); err != nil {
		t.Fatal(err)
	}
	for params, differs := range map[string]string{
		`"preset":"trusted","cwd":"/site/.","model":"test/echo","provider":"test","system_prompt":"You are a test."`: "",
		`"approvals":"deny","disable_tools":["shell"],"limits":{"tokens":7},"model":"echo"`:                          "",
		`"preset":"sandboxed"`:          "preset",
		`"cwd":"/other"`:                "cwd",
		`"model":"other/echo"`:          "model",
		`"provider":"other"`:            "provider",
		`"system_prompt":""`:            "system_prompt",
		`"approvals":"ask"`:             "approvals",
		`"parent_agent_id":"parent"`:    "parent_agent_id",
		`"disable_tools":["read_file"]`: "disable_tools",
		`"allowed_write_paths":["/"]`:   "allowed_write_paths",
		`"limits":{"tokens":8}`:         "limits",
		`"env":{"A":"b"},"model":"x"`:   "model, env",
	} {
		_, body := r.post("/", fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"create_agent","params":{"agent_id":"trusted","if_exists":"use",%s}}`, params))
		got := gjson.Get(body, "error.data.details").Str
		want := ""
		if differs != "" {
			want = "agent trusted is there and differs in " + differs
		}
		if got != want || gjson.Get(body, "result.existing").Bool() != (differs == "") {
			t.Errorf("%s: got %s, want %q", params, body, want)
		}
	}
	_, body := r.post("/", `{"jsonrpc":"2.0","id":1,"method":"create_agent","params":{"if_exists":"use"}}`)
	if got := gjson.Get(body, "error.message").Str; got != "Missing required parameter: agent_id" {
		t.Errorf("without a name: %s", body)
	}
	if _, err := r.sup.Agent("trusted"); err != nil {
		t.Errorf("a refused call took the agent away: %v", err)
	}
}

// An agent uses those that it has created, and gets nobody else's by their names.
func TestAgentsUseTheirOwn(t *testing.T) {
	f := familyOf(t, "trusted", "box")
	f.want("trusted", "create_agent", `{"agent_id":"mine"}`, `{"agent_id":"mine","url":"/agent/mine"}`)
	f.want("trusted", "create_agent", `{"agent_id":"mine","if_exists":"use"}`, `{"agent_id":"mine","url":"/agent/mine","existing":true,"message_count":0}`)
	for _, taken := range []string{"mine", "trusted", "box"} {
		f.want("box", "create_agent", fmt.Sprintf(`{"agent_id":%q,"if_exists":"use"}`, taken),
			fmt.Sprintf("error -32003 Not permitted: box did not create %s: choose another name, or send to it", taken))
	}
}
