package supervisor_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidwall/gjson"

	"nexus.internal/supervisor"
	"nexus.internal/supervisor/supervisortest"
)

// sequence is something that happens to an agent, and the states it goes through.
type sequence struct {
	name   string
	plan   func(supervisor.Spec, int) supervisortest.Play
	policy supervisor.Policy
	happen func(h *house, a *supervisor.Agent)
	want   string
}

var (
	unforgiving = supervisor.Policy{Limit: -1}
	refused     = supervisortest.Play{ReadyAfter: time.Second, Refuse: errors.New("no such program")}
	hung        = supervisortest.Play{NeverReady: true}
)

func exits(h *house, a *supervisor.Agent) {
	h.launcher.Child(a.ID()).Crash(supervisor.Exit{Code: 3})
	synctest.Wait()
}

func prompts(h *house, a *supervisor.Agent) {
	h.prompt(a, "", "x")
	synctest.Wait()
}

func aborts(h *house, a *supervisor.Agent) {
	_, _ = a.Abort(h.Context(), "")
	synctest.Wait()
}

func shutsDown(h *house, a *supervisor.Agent) {
	if err := a.Shutdown(h.Context()); err != nil {
		h.Error(err)
	}
}

func waits(h *house, _ *supervisor.Agent) {
	time.Sleep(time.Second) // in the bubble's time
	synctest.Wait()
}

// then is one thing after the other.
func then(all ...func(*house, *supervisor.Agent)) func(*house, *supervisor.Agent) {
	return func(h *house, a *supervisor.Agent) {
		for _, happens := range all {
			happens(h, a)
		}
	}
}

// sequences reach every move of the table.
var sequences = []sequence{
	{"a turn", nil, supervisor.Policy{}, prompts, "starting ready busy ready"},
	{"first start fails", always(refused), supervisor.Policy{}, waits, "starting stopped"},
	{"stopped and woken", nil, supervisor.Policy{}, then(shutsDown, prompts), "starting ready stopping stopped starting ready busy ready"},
	{"exits idle", nil, supervisor.Policy{}, then(exits, waits), "starting ready backoff starting ready"},
	{"exits idle, not forgiven", nil, unforgiving, then(exits, shutsDown), "starting ready failed stopped"},
	{"exits in a turn", series(supervisortest.Play{Prompt: crash}, supervisortest.Play{}), supervisor.Policy{}, then(prompts, waits), "starting ready busy backoff starting ready"},
	{"exits in a turn, not forgiven", always(supervisortest.Play{Prompt: crash}), unforgiving, prompts, "starting ready busy failed"},
	{"stopped in a turn", always(supervisortest.Play{Prompt: supervisortest.Hang}), supervisor.Policy{}, then(prompts, shutsDown), "starting ready busy stopping stopped"},
	{
		"does not honour a cancel", always(supervisortest.Play{Prompt: supervisortest.Hang}),
		supervisor.Policy{},
		then(prompts, aborts, shutsDown), "starting ready busy stopping backoff stopped",
	},
	{"the same, not forgiven", always(supervisortest.Play{Prompt: supervisortest.Hang}), unforgiving, then(prompts, aborts), "starting ready busy stopping failed"},
	{"restart fails", series(supervisortest.Play{}, refused, supervisortest.Play{}), supervisor.Policy{}, then(exits, waits, waits), "starting ready backoff starting backoff starting ready"},
	{"restart is no child of ours", series(supervisortest.Play{}, supervisortest.Play{Version: 2}), supervisor.Policy{}, then(exits, waits), "starting ready backoff starting failed"},
	{"stopped in a restart", series(supervisortest.Play{}, hung), supervisor.Policy{}, then(exits, waits, shutsDown), "starting ready backoff starting stopping stopped"},
}

func TestSequences(t *testing.T) {
	unseen := legalMoves()
	for _, q := range sequences {
		t.Run(q.name, func(t *testing.T) {
			var got string
			run(t, q.plan, func(h *house) {
				starting := make(chan error, 1)
				go func() {
					_, err := h.sup.Start(h.Context(), supervisor.Spec{ID: "alice", Policy: q.policy})
					starting <- err
				}()
				synctest.Wait()
				a, err := h.sup.Agent("alice")
				if err != nil {
					h.Fatal(err)
				}
				ended := passes(h, a)
				q.happen(h, a)
				if err := <-starting; (err != nil) != (q.want == "starting stopped") {
					h.Errorf("Start = %v", err)
				}
				if last, is := q.want[strings.LastIndex(q.want, " ")+1:], a.Info().State.String(); is != last {
					h.Errorf("ends as %s, want %s", is, last)
				}
				h.drain()
				got = <-ended
			})
			if !strings.HasPrefix(got, q.want) { // what follows is the end of the test
				t.Errorf("went through %s, want %s", got, q.want)
			}
			from := "stopped"
			for to := range strings.FieldsSeq(got) {
				if !legalMoves()[from+" "+to] {
					t.Errorf("moved from %s to %s", from, to)
				}
				delete(unseen, from+" "+to)
				from = to
			}
		})
	}
	for move := range unseen {
		t.Errorf("no sequence has the move %s", move)
	}
}

// passes tells, once the agent is removed, the states that it went through, as
// its events say.
func passes(h *house, a *supervisor.Agent) chan string {
	sub, err := a.Subscribe(0)
	if err != nil {
		h.Fatal(err)
	}
	ended := make(chan string, 1)
	go func() {
		var states []string
		running := "" // the turn
		for {
			batch, err := sub.Next(h.Context())
			if err != nil {
				ended <- strings.Join(states, " ")
				return
			}
			for _, e := range batch {
				id := gjson.GetBytes(e.Data, "turn_id").Str
				switch e.Type {
				case "agent_state":
					states = append(states, gjson.GetBytes(e.Data, "state").Str)
				case "turn_start":
					running = id
					states = append(states, "busy")
				case "turn_end":
					outcome := supervisor.Outcome(gjson.GetBytes(e.Data, "outcome").Str)
					if id == running && outcome != supervisor.Crashed && states[len(states)-1] == "busy" {
						states = append(states, "ready")
					}
				}
			}
		}
	}()
	return ended
}
