package bridge_test

import (
	"errors"
	"strings"
	"testing"

	"nexus.internal/bridge"
	"nexus.internal/bridge/api"
	"nexus.internal/bridge/client"
	"nexus.internal/protocol"
	"nexus.internal/protocol/jsonrpc"
	"nexus.internal/supervisor"
	"nexus.internal/supervisor/supervisortest"
)

func TestStartFailure(t *testing.T) {
	r := rigged(t, func(r *rig, _ *bridge.Options) {
		r.launcher.Plan = func(supervisor.Spec, int) supervisortest.Play {
			return supervisortest.Play{Refuse: &supervisor.StartError{
				Err: errors.New("no model"), Exit: &supervisor.Exit{Code: 2, Stderr: "set OPENAI_API_KEY"},
			}}
		}
	})
	_, err := client.Do(r.ctx(), r.client, "", api.CreateAgent, api.CreateAgentParams{AgentID: new("a")})
	e := wantError(t, err, jsonrpc.CodeServerError, "START_FAILED", 200)
	if !strings.Contains(e.Data.Details, "set OPENAI_API_KEY") {
		t.Errorf("details %q do not have the process's words", e.Data.Details)
	}
	list, err := client.Do(r.ctx(), r.client, "", api.ListAgents, api.None{})
	if err != nil || len(list.Agents) != 0 {
		t.Errorf("list after a failed start: %+v, %v", list, err)
	}
}

// An agent that is destroyed while a request to it is under way is named in
// what the request comes to.
func TestDestroyedMeanwhile(t *testing.T) {
	begun, stopping, stop := make(chan struct{}), make(chan struct{}), make(chan struct{})
	r := rigged(t, func(r *rig, o *bridge.Options) {
		plays(func(c *supervisortest.Child, p protocol.Prompt) {
			close(begun)
			<-c.Aborted() // asked to end, it takes its time
			close(stopping)
			<-stop
		})(r, o)
	})
	r.create("a")
	running := r.begin("a", "r")
	<-begun // a child that is ended before it has its prompt ends at once
	destroyed := make(chan error, 1)
	go func() {
		_, err := client.Do(r.ctx(), r.client, "", api.DestroyAgent, api.AgentIDParams{AgentID: "a"})
		destroyed <- err
	}()
	<-stopping
	_, err := client.Do(r.ctx(), r.client, "a", api.Send, api.SendParams{Content: "x"})
	if e := wantError(t, err, jsonrpc.CodeInvalidParams, "AGENT_NOT_FOUND", 404); e.Message != "Agent not found: a" ||
		!strings.Contains(e.Data.Details, "destroyed") {
		t.Errorf("got %q, %q", e.Message, e.Data.Details)
	}
	_, err = client.Do(r.ctx(), r.client, "a", api.GetTokens, api.None{})
	if e := rpcError(t, err); e.Message != "Agent not found: a" {
		t.Errorf("got %q", e.Message)
	}
	for event, err := range r.client.Events(r.ctx(), "a", 0, client.Filter{}) {
		if e := rpcError(t, err); e.Message != "Agent not found: a" {
			t.Errorf("got %v, %q", event, e.Message)
		}
	}
	close(stop)
	if err := <-destroyed; err != nil {
		t.Error(err)
	}
	r.await(running)
}
