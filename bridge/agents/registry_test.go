package agents_test

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"nexus.internal/bridge/agents"
	"nexus.internal/bridge/api"
	"nexus.internal/protocol"
	"nexus.internal/supervisor"
	"nexus.internal/supervisor/supervisortest"
)

// A saved agent is started once, however many ask for it at once.
func TestResolveOfASavedAgent(t *testing.T) {
	h := newHouse(t, supervisortest.Play{})
	var built atomic.Int32
	h.admit = func(supervisor.Spec) {
		built.Add(1)
		for range 1000 { // the others come to the same point meanwhile
			runtime.Gosched()
		}
	}
	h.save("saved", "{}\n")
	var work sync.WaitGroup
	for range 8 {
		work.Go(func() {
			a, err := h.Resolve(t.Context(), "saved")
			if err != nil {
				t.Errorf("resolve a saved agent: %v", err)
				return
			}
			h.say(a, "hello")
		})
	}
	work.Wait()
	if n := built.Load(); n != 1 || len(h.launcher.Launches("saved")) != 1 {
		t.Errorf("the agent was prepared %d times, want once", n)
	}
	h.destroy("saved")
	if _, from, err := h.create("saved", ""); from != agents.WasSaved || err != nil {
		t.Errorf("create of a saved agent: %q, %v", from, err)
	}
}

// What an earlier agent of a name left is that of an agent with its session, and of no other.
func TestFresh(t *testing.T) {
	h := newHouse(t, supervisortest.Play{})
	var fresh []bool
	plan := h.launcher.Plan
	h.launcher.Plan = func(s supervisor.Spec, n int) supervisortest.Play {
		fresh = append(fresh, s.Fresh)
		return plan(s, n)
	}
	h.save("saved", "{}\n")
	for _, id := range []string{"saved", "new"} {
		if was, err := h.Cancel(t.Context(), id, "1"); was != (id == "saved") || err != nil {
			t.Errorf("the prompt of %s was cancelled: %t, %v", id, was, err)
		}
		if _, _, err := h.create(id, ""); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(fresh, []bool{false, true}) {
		t.Errorf("started as fresh: %t, want the saved one not, and the new one", fresh)
	}
}

func TestTemporaryAgentLeavesNothing(t *testing.T) {
	h := newHouse(t, supervisortest.Play{})
	h.save(".1", "left by an earlier one")
	_, err := h.Resolve(t.Context(), ".1")
	want(t, err, api.KindAgentNotFound)
	if _, from, err := h.create(".1", ""); from != agents.IsNew || err != nil {
		t.Fatalf("create: %q, %v", from, err)
	}
	path := h.sessions.Path(".1")
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the earlier agent's file is still there: %v", err)
	}
	h.save(".1", "its own")
	h.destroy(".1")
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the agent's file outlived it: %v", err)
	}
}

func TestCreateAtOnce(t *testing.T) {
	h := newHouse(t, supervisortest.Play{})
	var work sync.WaitGroup
	results := make([]error, 8)
	for i := range results {
		work.Go(func() { _, _, results[i] = h.create("a", "") })
	}
	work.Wait()
	made := 0
	for _, err := range results {
		if err == nil {
			made++
		} else {
			want(t, err, api.KindAgentExists)
		}
	}
	if made != 1 {
		t.Errorf("%d of 8 made the agent, want one", made)
	}
}

func TestDepthOfAgents(t *testing.T) {
	h := newHouse(t, supervisortest.Play{})
	names := []string{"g0", "g1", "g2", "g3", "g4", "g5", "g6"}
	h.made("g0", "")
	for i := 1; i <= 5; i++ {
		h.made(names[i], names[i-1])
	}
	_, _, err := h.create("g6", "g5")
	want(t, err, api.KindInvalidParams)
	if got := h.Created("g0"); !slices.Equal(got, []string{"g1"}) || !h.Descends("g5", "g0") || h.Descends("g0", "g5") {
		t.Errorf("created for g0: %q", got)
	}
}

// A spec is made of what is asked for, of the parent, and of the saved session.
func TestSpec(t *testing.T) {
	h := newHouse(t, supervisortest.Play{})
	h.made("parent", "")
	h.save("top", savedText)
	h.save("boss", savedText+`{"type":"settings","at":"2026-01-02T03:04:06Z","parent_agent_id":"top"}`+"\n")
	h.save("saved", savedText+`{"type":"settings","at":"2026-01-02T03:04:06Z","parent_agent_id":"boss","depth":2,"approvals":"ask","permissions":{"preset":"yolo"}}`+"\n")
	h.save("cut", savedText)
	h.save(".left", savedText)
	const noEnv = "74234e98afe7498fb5daf1f36ac2d78acc339464f950703b8c019892f982b90b" // SHA-256 of null
	ceiling := &protocol.Permissions{Preset: "sandboxed", DisabledTools: []string{"shell"}}
	for params, want := range map[string]supervisor.Spec{
		`{"agent_id":"new","default_cwd":"/d","disable_tools":["shell"]}`: {
			ID: "new", Fresh: true, Cwd: "/d", Labels: supervisor.Labels{EnvDigest: noEnv}, Permissions: protocol.Permissions{DisabledTools: []string{"shell"}},
		},
		`{"agent_id":".left","allowed_write_paths":[]}`: {
			ID: ".left", Fresh: true, Labels: supervisor.Labels{EnvDigest: noEnv}, Permissions: protocol.Permissions{WritePaths: []string{}},
		},
		`{"agent_id":"online","network":["a.test"]}`: {
			ID: "online", Fresh: true, Labels: supervisor.Labels{EnvDigest: noEnv}, Permissions: protocol.Permissions{Network: []string{"a.test"}},
		},
		`{"agent_id":"made","parent_agent_id":"parent","default_cwd":"/d","approvals":"ask"}`: {
			ID: "made", Fresh: true, Cwd: "/site", Permissions: protocol.Permissions{Preset: "sandboxed"}, Ceiling: ceiling,
			Labels: supervisor.Labels{Parent: "parent", Provenance: "parent", Depth: 1, Approvals: "ask", EnvDigest: noEnv},
		},
		`{"agent_id":"saved","default_cwd":"/d"}`: {
			ID: "saved", Permissions: protocol.Permissions{Preset: "trusted"}, Ancestors: []string{"top"},
			Labels: supervisor.Labels{Parent: "boss", Provenance: "boss", Depth: 2, Approvals: "ask", NarrowedFrom: "yolo", EnvDigest: noEnv},
		},
		`{"agent_id":"cut","parent_agent_id":"parent"}`: {
			ID: "cut", Permissions: protocol.Permissions{Preset: "sandboxed"}, Ceiling: ceiling,
			Labels: supervisor.Labels{Parent: "parent", Provenance: "parent", Depth: 1, EnvDigest: noEnv},
		},
	} {
		var got supervisor.Spec
		h.admit = func(s supervisor.Spec) { got = s }
		p, err := api.Decode[api.CreateAgentParams]([]byte(params))
		if err != nil {
			t.Fatal(err)
		}
		a, _, err := h.Create(t.Context(), person(), p)
		if err != nil {
			t.Fatal(err)
		}
		labels := a.Info().Labels
		labels.Cwd = "" // see TestCwd
		if diff := cmp.Diff(want, got); diff != "" || labels != want.Labels {
			t.Errorf("%s (-want +got):\n%s", params, diff)
		}
	}
}

// Where an agent works is known from its start on, before its process says it.
func TestCwd(t *testing.T) {
	h := newHouse(t, supervisortest.Play{})
	dir, err := filepath.EvalSymlinks(t.TempDir())
	link := filepath.Join(dir, "link")
	if err := errors.Join(err, os.Symlink(dir, link)); err != nil {
		t.Fatal(err)
	}
	h.save("saved", savedText+`{"type":"settings","at":"2026-01-02T03:04:06Z","cwd":"/srv/saved"}`+"\n")
	for _, test := range []struct {
		p    api.CreateAgentParams
		want *string
	}{
		{api.CreateAgentParams{AgentID: new("new"), Cwd: &link}, &dir},
		{api.CreateAgentParams{AgentID: new("saved")}, new("/srv/saved")},
		{api.CreateAgentParams{AgentID: new("anywhere")}, nil},
	} {
		a, _, err := h.Create(t.Context(), person(), test.p)
		if err != nil {
			t.Fatal(err)
		}
		info := a.Info()
		if got := agents.Describe(info, 0).Cwd; cmp.Diff(test.want, got) != "" {
			t.Errorf("%s works in %v, want %v", *test.p.AgentID, got, test.want)
		}
		info.Update = &protocol.SessionUpdate{Cwd: "/moved"}
		if got := agents.Cwd(info); got == nil || *got != "/moved" {
			t.Errorf("%s works in %v, but says /moved", *test.p.AgentID, got)
		}
	}
}

// Nothing that is asked for of an agent that runs is silently not so.
func TestCheckSame(t *testing.T) {
	h := newHouse(t, supervisortest.Play{})
	h.made("parent", "")
	a, _, err := h.Create(t.Context(), person(), api.CreateAgentParams{AgentID: new("trusted"), Limits: tokens(7)})
	if err != nil {
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
		`"allowed_write_paths":["/w"]`:  "allowed_write_paths",
		`"network":["a.test"]`:          "network",
		`"limits":{"tokens":8}`:         "limits",
		`"env":{"A":"b"},"model":"x"`:   "model, env",
	} {
		given, err := api.Decode[api.CreateAgentParams]([]byte(`{"agent_id":"trusted","if_exists":"use",` + params + `}`))
		if err != nil {
			t.Fatal(err)
		}
		err = h.CheckSame(t.Context(), a, given)
		e, _ := errors.AsType[*api.Error](err)
		if differs == "" && err == nil {
			continue
		}
		if e == nil || e.Kind != api.KindAgentExists || e.Details != "agent trusted is there and differs in "+differs {
			t.Errorf("%s: got %v, want a difference in %q", params, err, differs)
			continue
		}
		// Only what changes that is suggested.
		by := map[string]string{"limits": "(set_limits for limits)", "model, env": "(set_model for model)", "disable_tools": "(set_permissions for disable_tools)"}[differs]
		if got := e.Suggestions[0]; by != "" && !strings.Contains(got, by) || differs == "env" && strings.Contains(got, "set_") {
			t.Errorf("%s: suggested: %s", params, got)
		}
	}
}

func TestRenameOfABusyAgent(t *testing.T) {
	running, stop := make(chan struct{}), make(chan struct{})
	h := newHouse(t, supervisortest.Play{Prompt: func(c *supervisortest.Child, p protocol.Prompt) {
		close(running)
		<-stop
		c.Finish(p, "done")
	}})
	a := h.made("a", "")
	h.save("a", savedText)
	var sent sync.WaitGroup
	sent.Go(func() { h.say(a, "x") })
	<-running
	want(t, h.Rename(t.Context(), "a", "b"), api.KindAgentRunning)
	close(stop)
	sent.Wait()
	h.made("helper", "a")
	want(t, h.Rename(t.Context(), "a", "b"), api.KindAgentRunning)
	h.destroy("helper")
	if err := h.Rename(t.Context(), "a", "b"); err != nil || h.sessions.Exists("a") || !h.sessions.Exists("b") {
		t.Errorf("rename: %v", err)
	}
}

// The name of an agent that runs is taken, also while nothing of it is saved.
func TestRenameToWhatOnlyRuns(t *testing.T) {
	h := newHouse(t, supervisortest.Play{})
	a := h.made("a", "")
	h.save("a", savedText)
	h.made("b", "")
	if h.sessions.Exists("b") {
		t.Fatal("b is saved")
	}
	want(t, h.Rename(t.Context(), "a", "b"), api.KindSessionExists)
	h.say(a, "hello") // it kept its name
}

// A temporary agent without a name does not take that of the session that a person used last: if it could not
// be started, there would be nothing to go on with.
func TestLastKeepsItsName(t *testing.T) {
	h := newHouse(t, supervisortest.Play{})
	h.SetLast(".1")
	h.save(".1", savedText)
	if got := h.FreeID(true); got != ".2" {
		t.Errorf("the next one is %s", got)
	}
}

// What a person used last is not removed while it gets another name, although
// somebody uses another agent meanwhile.
func TestLastIsRenamed(t *testing.T) {
	moving, goOn := make(chan struct{}, 2), make(chan struct{})
	h := newHouse(t, supervisortest.Play{})
	h.forget = func(string) {
		moving <- struct{}{}
		<-goOn
	}
	h.made(".a", "")
	h.SetLast(".a")
	h.save(".a", savedText)
	renamed := make(chan error, 1)
	go func() { renamed <- h.Rename(t.Context(), ".a", "a") }()
	<-moving
	h.SetLast("other")
	close(goOn)
	if err := <-renamed; err != nil || !h.sessions.Exists("a") {
		t.Errorf("renamed: %v", err)
	}
}

// A session is deleted with its agent where that has no process. One that runs, or
// created others, keeps it.
func TestDeleteOfAStoppedAgent(t *testing.T) {
	h := newHouse(t, supervisortest.Play{})
	a := h.made("a", "")
	h.save("a", savedText)
	_, err := h.DeleteSession(t.Context(), "a")
	want(t, err, api.KindAgentRunning)
	h.made("helper", "a")
	if err := a.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, err = h.DeleteSession(t.Context(), "a")
	want(t, err, api.KindAgentRunning)
	h.destroy("helper")
	if deleted, err := h.DeleteSession(t.Context(), "a"); !deleted || err != nil || h.sessions.Exists("a") {
		t.Errorf("delete: %v, %v", deleted, err)
	}
	if _, err := h.sup.Agent("a"); !errors.Is(err, supervisor.ErrNotFound) {
		t.Errorf("the agent of the session: %v", err)
	}
}
