package bridge_test

import (
	"fmt"
	"strings"
	"sync"
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
	for _, refused := range []api.CreateAgentParams{
		{AgentID: new("trusted")},
		{AgentID: new("trusted"), IfExists: new("fail")},
		{AgentID: new("trusted"), IfExists: new("use"), Preset: new("sandboxed")}, // it is trusted
	} {
		_, err := client.Do(r.ctx(), r.client, "", api.CreateAgent, refused)
		wantError(t, err, jsonrpc.CodeInvalidParams, "AGENT_EXISTS", 200)
	}
	_, err = client.Do(r.ctx(), r.client, "", api.CreateAgent, api.CreateAgentParams{IfExists: new("use")})
	if got := rpcError(t, err).Message; got != "Missing required parameter: agent_id" {
		t.Errorf("without a name: %s", got)
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

// The server names temporary agents by numbers, each once.
func TestTemporaryNames(t *testing.T) {
	r, _ := watched(t, supervisortest.Echo)
	seen := map[string]bool{}
	var all sync.WaitGroup
	var mu sync.Mutex // guards seen
	for range 5 {
		all.Go(func() {
			made, err := client.Do(r.ctx(), r.client, "", api.CreateAgent, api.CreateAgentParams{Temporary: new(true)})
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			seen[made.AgentID] = true
		})
	}
	all.Wait()
	for _, id := range []string{".1", ".2", ".3", ".4", ".5"} {
		if !seen[id] {
			t.Errorf("temporary agents: %v", seen)
		}
	}
	if _, err := client.Do(r.ctx(), r.client, "", api.CreateAgent, api.CreateAgentParams{AgentID: new("x"), Temporary: new(true)}); err == nil || !strings.Contains(err.Error(), "temporary") {
		t.Errorf("a name and temporary: %v", err)
	}
}
