package bridge_test

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tidwall/gjson"

	"nexus.internal/bridge"
	"nexus.internal/bridge/api"
	"nexus.internal/bridge/client"
	"nexus.internal/bridge/forward"
)

// ask calls a global method and returns the answer.
func ask(r *rig, method, params string) gjson.Result {
	r.t.Helper()
	_, body := r.post("/rpc", `{"jsonrpc":"2.0","method":"`+method+`","params":`+params+`,"id":1}`)
	return gjson.Parse(body)
}

// What names an agent or a session goes to the machine that has it.
func TestForwardedByName(t *testing.T) {
	c := newCluster("a", "b")
	a := c.join(t, "a", func(r *rig, o *bridge.Options) {
		r.save("home/sessions/role.jsonl", []byte(savedText), 1)
	})
	b := c.join(t, "b", func(r *rig, o *bridge.Options) {
		r.save("home/sessions/old.jsonl", []byte(savedText), 1)
	})
	pause := time.NewTicker(time.Millisecond)
	defer pause.Stop()
	for began := time.Now(); c.owner("old") != "b" || c.owner("role") != "a"; <-pause.C { // they claim what is saved beside serving
		if time.Since(began) > patience {
			t.Fatal("what is saved is not claimed")
		}
	}
	for _, test := range []struct{ method, params, want, name, owner string }{
		{"create_agent", `{"agent_id":"old"}`, `result.restored`, "old", "b"},
		{"create_agent", `{"agent_id":"old"}`, `error.data.type|AGENT_EXISTS`, "old", "b"},
		{"create_agent", `{"agent_id":"old","if_exists":"use"}`, `result.existing`, "old", "b"},
		{"create_agent", `{"agent_id":"child","parent_agent_id":"old"}`, `result.agent_id|child`, "child", "b"},
		{"create_agent", `{"agent_id":"mine"}`, `result.agent_id|mine`, "mine", "a"},
		{"destroy_agent", `{"agent_id":"child"}`, `result.success`, "child", ""},
		{"clone_session", `{"src_session":"old","dest_session":"copy"}`, `result.cloned`, "copy", "b"},
		{"clone_session", `{"src_session":"role","dest_session":"copy"}`, `error.data.type|SESSION_EXISTS`, "copy", "b"},
		{"rename_session", `{"old_name":"copy","new_name":"next"}`, `result.renamed`, "next", "b"},
		{"load_session", `{"session_name":"next"}`, `result.restored`, "next", "b"},
		{"fork", `{"agent_id":"next","new_agent_id":"branch"}`, `result.agent_id|branch`, "branch", "b"},
		{"save_session", `{"agent_id":"branch","session_name":"kept"}`, `result.saved`, "kept", "b"},
		{"delete_session", `{"session_name":"kept"}`, `result.deleted`, "kept", ""},
		{"destroy_agent", `{"agent_id":"nobody"}`, `result.agent_id|nobody`, "nobody", ""},
	} {
		answer := ask(a, test.method, test.params)
		path, want, _ := strings.Cut(test.want, "|")
		if got := answer.Get(path); !got.Exists() || got.Type == gjson.False || want != "" && got.Str != want {
			t.Errorf("%s %s: %s", test.method, test.params, answer)
		}
		if got := c.owner(test.name); got != test.owner {
			t.Errorf("after %s %s: %s is of %q, want %q", test.method, test.params, test.name, got, test.owner)
		}
	}
	if _, err := b.sup.Agent("old"); err != nil {
		t.Error(err)
	}
	if _, err := a.sup.Agent("mine"); err != nil {
		t.Error(err)
	}
}

// A new agent is made where it is wanted, and is there at once for a client of the machine that was asked.
func TestPlace(t *testing.T) {
	c, all := clusterOf(t, nil, "a", "b", "c")
	a := all[0]
	c.labels = map[string]map[string]string{"b": {"gpu": "yes", "disk": "big"}, "c": {"gpu": "yes"}}
	c.load = map[string]forward.Load{"a": {Processors: 4}, "b": {Processors: 4, Agents: 8}, "c": {Processors: 1, Agents: 1}}
	c.hidden = true // a learns of no claim
	n := 0
	place := func(want, place string) {
		t.Helper()
		n++
		id := "p" + strconv.Itoa(n)
		answer := ask(a, "create_agent", `{"agent_id":"`+id+`","place":`+place+`}`)
		if got := c.owner(id); got != want || answer.Get("result.agent_id").Str != id {
			t.Errorf("%s is of %q, want %q: %s", place, got, want, answer)
		}
		if model, body := a.post("/agent/"+id, `{"jsonrpc":"2.0","method":"get_model","id":1}`); model.StatusCode != http.StatusOK {
			t.Errorf("asked at once: %s", body)
		}
	}
	place("b", `{"node":"b"}`)
	place("b", `{"labels":{"gpu":"yes","disk":"big"}}`)
	place("c", `{"labels":{"gpu":"yes"}}`)
	place("c", `{"labels":{"gpu":"yes"}}`) // b has 8 and two placed lately for 4 processors, c one and one for one
	place("b", `{"labels":{"gpu":"yes"}}`)
	place("c", `{"near":"p3"}`)
	place("a", `{}`)
	named := ask(a, "create_agent", `{"place":{"node":"c"},"temporary":true}`).Get("result.agent_id").Str
	if c.owner(named) != "c" {
		t.Errorf("an agent without a name is of %q", c.owner(named))
	}
	c.load["c"] = forward.Load{Processors: 100, Agents: 1, MaxAgents: 1}
	place("b", `{"labels":{"gpu":"yes"}}`) // c takes no more
	if got := ask(a, "create_agent", `{"agent_id":"none","place":{"node":"c"}}`).Get("error.data.type").Str; got != "TOO_MANY_AGENTS" {
		t.Errorf("one more than c takes: %s", got)
	}
	for place, want := range map[string]string{
		`{"node":"bb"}`:                          "Invalid parameter place.node: no machine of that name is known",
		`{"near":"nobody"}`:                      "Invalid parameter place.near: no agent of that name is known",
		`{"node":"a","labels":{"gpu":"yes"}}`:    "Invalid parameter place: no machine is as it says",
		`{"nodes":"a"}`:                          "Unknown parameter: place.nodes",
		`{"labels":{"gpu":"yes","disk":"none"}}`: "Invalid parameter place: no machine is as it says",
	} {
		if got := ask(a, "create_agent", `{"agent_id":"none","place":`+place+`}`).Get("error.message").Str; got != want {
			t.Errorf("%s: %q, want %q", place, got, want)
		}
	}
	c.cut("b")
	if got := ask(a, "create_agent", `{"agent_id":"none","place":{"node":"b"}}`); got.Get("error.data.type").Str != "NODE_UNREACHABLE" {
		t.Errorf("on a machine that is lost: %s", got)
	}
	alone := rigged(t, nil)
	if got := ask(alone, "create_agent", `{"place":{}}`).Get("error.message").Str; got != "Invalid parameter place: the server is none of a cluster" {
		t.Errorf("without a cluster: %s", got)
	}
}

// Lists are of all machines, and say which have not answered.
func TestEverywhere(t *testing.T) {
	c, all := clusterOf(t, nil, "a", "b", "c")
	a, b := all[0], all[1]
	a.save("home/sessions/s1.jsonl", []byte(savedText), 9001)
	b.save("home/sessions/s2.jsonl", []byte(savedText), 9002)
	a.save("home/sessions/s3.jsonl", []byte(savedText), 9003)
	for i, id := range []string{"z", "m", "q"} {
		all[i].create(id)
	}
	a.save("home/sessions/q.jsonl", []byte(savedText), 9004) // c has q
	list := func() string {
		answer := ask(a, "list_agents", `{}`)
		return answer.Get(`result.agents.#.agent_id`).Raw + answer.Get("result.agents.#.node").Raw + answer.Get("result.unreachable_nodes").Raw
	}
	if got, want := list(), `["m","q","z"]["b","c","a"]`; got != want {
		t.Errorf("the agents are %s, want %s", got, want)
	}
	for params, want := range map[string]string{
		`{}`:                     `["s3","s2","s1"]["a","b","a"]3`,
		`{"limit":1}`:            `["s3"]["a"]3`,
		`{"offset":1,"limit":1}`: `["s2"]["b"]3`,
		`{"offset":3}`:           `[][]3`,
	} {
		answer := ask(b, "list_sessions", params)
		if got := answer.Get("result.sessions.#.name").Raw + answer.Get("result.sessions.#.node").Raw + answer.Get("result.total").Raw; got != want {
			t.Errorf("the sessions of %s are %s, want %s", params, got, want)
		}
	}
	if got := ask(a, "list_sessions", `{"offset":990}`).Get("error.message").Str; got != "Invalid parameter offset: want, with limit, at most 1000 in a cluster" {
		t.Errorf("a deep page: %s", got)
	}
	summaries, err := client.Do(a.ctx(), a.client, "", api.GetAgentSummaries, api.AgentSummariesParams{})
	if err != nil || len(summaries.Agents) != 3 || summaries.Agents[0].Node != "b" {
		t.Errorf("the summaries: %+v, %v", summaries, err)
	}
	c.cut("b")
	if got, want := list(), `["q","z"]["c","a"]["b"]`; got != want {
		t.Errorf("without b, the agents are %s, want %s", got, want)
	}
	c.mu.Lock()
	for name, of := range c.claims {
		if of == "b" {
			c.claims[name] = "c" // which takes them over
		}
	}
	c.mu.Unlock()
	if got, want := list(), `["q","z"]["c","a"]`; got != want {
		t.Errorf("with the agents of b at c, the agents are %s, want %s", got, want)
	}
	if got := ask(a, "list_runs", `{}`).Get("result.unreachable_nodes").Raw; got != `["b"]` {
		t.Errorf("of runs, which are not taken over, those of %s are missing", got)
	}
}
