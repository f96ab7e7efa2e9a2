package bridge_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"nexus.internal/bridge"
	"nexus.internal/bridge/agents"
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
	for event, err := range r.client.Events(r.ctx(), "a", 0) {
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

func TestRestore(t *testing.T) {
	var asked atomic.Int32
	r := rigged(t, func(_ *rig, o *bridge.Options) {
		o.Runtime = withSpec{o.Runtime, func(agents.AgentSpec) (supervisor.Spec, error) {
			asked.Add(1)
			for range 1000 { // the others come to the same point meanwhile
				runtime.Gosched()
			}
			return supervisor.Spec{}, nil
		}}
	})
	path := r.sessions.Path("saved")
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("{}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var work sync.WaitGroup
	for i := range 8 {
		work.Go(func() {
			if _, err := client.Do(r.ctx(), r.client, "saved", api.Send, api.SendParams{Content: fmt.Sprint(i)}); err != nil {
				t.Errorf("send to a saved agent: %v", err)
			}
		})
	}
	work.Wait()
	if n := asked.Load(); n != 1 || len(r.launcher.Launches("saved")) != 1 {
		t.Errorf("the agent was prepared %d times, want once", n)
	}
	if _, err := client.Do(r.ctx(), r.client, "", api.DestroyAgent, api.AgentIDParams{AgentID: "saved"}); err != nil {
		t.Fatal(err)
	}
	created, err := client.Do(r.ctx(), r.client, "", api.CreateAgent, api.CreateAgentParams{AgentID: new("saved")})
	if err != nil || !created.Restored || created.MessageCount == nil {
		t.Errorf("create of a saved agent: %+v, %v, want it restored", created, err)
	}
}

func TestCancelAndShutdownDoNotStartASavedAgent(t *testing.T) {
	r := rigged(t, nil)
	path := r.sessions.Path("saved")
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("{}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := client.Do(r.ctx(), r.client, "saved", api.Cancel, api.CancelParams{RequestID: "x"}); err != nil || got.Cancelled {
		t.Errorf("cancel: %+v, %v", got, err)
	}
	if _, err := client.Do(r.ctx(), r.client, "saved", api.Shutdown, api.None{}); err != nil {
		t.Errorf("shutdown: %v", err)
	}
	if n := len(r.launcher.Launches("saved")); n != 0 {
		t.Errorf("the agent was launched %d times, want never", n)
	}
}

func TestTemporaryAgentLeavesNothing(t *testing.T) {
	r := rigged(t, nil)
	path := r.sessions.Path(".1")
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("left by an earlier one"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Do(r.ctx(), r.client, ".1", api.Send, api.SendParams{Content: "x"}); rpcError(t, err).HTTPStatus != 404 {
		t.Errorf("a temporary agent was restored: %v", err)
	}
	created, err := client.Do(r.ctx(), r.client, "", api.CreateAgent, api.CreateAgentParams{AgentID: new(".1")})
	if err != nil || created.Restored {
		t.Fatalf("create: %+v, %v", created, err)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the earlier agent's file is still there: %v", err)
	}
	if err := os.WriteFile(path, []byte("its own"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Do(r.ctx(), r.client, "", api.DestroyAgent, api.AgentIDParams{AgentID: ".1"}); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the agent's file outlived it: %v", err)
	}
}

func TestCreateAtOnce(t *testing.T) {
	r := rigged(t, nil)
	var work sync.WaitGroup
	results := make([]error, 8)
	for i := range results {
		work.Go(func() {
			_, results[i] = client.Do(r.ctx(), r.client, "", api.CreateAgent, api.CreateAgentParams{AgentID: new("a")})
		})
	}
	work.Wait()
	made := 0
	for _, err := range results {
		if err == nil {
			made++
		} else {
			wantError(t, err, jsonrpc.CodeInvalidParams, "AGENT_EXISTS", 200)
		}
	}
	if made != 1 {
		t.Errorf("%d of 8 made the agent, want one", made)
	}
}

func TestDepthOfAgents(t *testing.T) {
	r := rigged(t, nil)
	r.create("g0")
	for i := 1; i <= 6; i++ {
		_, err := client.Do(r.ctx(), r.client, "", api.CreateAgent, api.CreateAgentParams{
			AgentID: new(fmt.Sprintf("g%d", i)), ParentAgentID: new(fmt.Sprintf("g%d", i-1)),
		})
		if i <= 5 && err != nil {
			t.Fatalf("generation %d: %v", i, err)
		}
		if i == 6 {
			wantError(t, err, jsonrpc.CodeInvalidParams, "INVALID_PARAMS", 200)
		}
	}
	list, err := client.Do(r.ctx(), r.client, "", api.ListAgents, api.None{})
	if err != nil || list.Agents[0].ChildCount != 1 || *list.Agents[1].ParentAgentID != "g0" {
		t.Errorf("list: %+v, %v", list, err)
	}
}
