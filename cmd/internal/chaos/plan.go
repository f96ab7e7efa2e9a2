package chaos

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
)

// Action is what a step does.
type Action string

// What drivers do. All but the first three are for target agents alone.
const (
	Echo     Action = "echo"     // a short send
	Count    Action = "count"    // a streamed one that takes a while
	HangUp   Action = "hang up"  // leave the events and come back for the rest
	Burst    Action = "burst"    // three sends at once
	Cancel   Action = "cancel"   // a long send, cancelled after For
	Steer    Action = "steer"    // a long send, then one that takes its place
	Timeout  Action = "timeout"  // a long send with a timeout_s of For
	Repeat   Action = "repeat"   // the last send again, by the same request_id
	Prompt   Action = "prompt"   // a prompt of the scenario, Word
	Recreate Action = "recreate" // destroy and create
	Shutdown Action = "shutdown" // end the process; the next send starts it
)

// What the attacker does.
const (
	Kill       Action = "kill"        // SIGKILL to an agent's process
	Stop       Action = "stop"        // SIGSTOP, and SIGCONT after For
	FillDisk   Action = "fill disk"   // and free it after For
	KillServer Action = "kill server" // SIGKILL, and start it again
)

// Step is one action. A step that is late is done at once.
type Step struct {
	At    time.Duration // since the attack began
	Do    Action
	Agent int           // of the plan's agents
	For   time.Duration // where Do says so
	Word  string        // of Prompt: one of the scenario's
}

// Plan is who does what. It follows from its first four members alone.
type Plan struct {
	Seed   uint64
	Agents int
	Time   time.Duration
	// Control is how many of the agents, from the first, nobody attacks.
	Control int
	Talk    [][]Step // by agent, in the order of time
	Attack  []Step   // in the order of time
}

// weighted is a choice, and how often it falls beside the others.
type weighted struct {
	do   Action
	word string
	of   int
}

var (
	controlActions = []weighted{{Echo, "", 12}, {Count, "", 4}, {HangUp, "", 1}}
	targetActions  = []weighted{
		{Echo, "", 20},
		{Count, "", 6},
		{HangUp, "", 6},
		{Burst, "", 6},
		{Cancel, "", 10},
		{Steer, "", 4},
		{Timeout, "", 4},
		{Repeat, "", 6},
		{Recreate, "", 3},
		{Shutdown, "", 2},
		{Prompt, "flood", 5},
		{Prompt, "think", 2},
		{Prompt, "error", 2},
		{Prompt, "exit", 1},
		{Prompt, "panic", 1},
		{Prompt, "die", 1},
		{Prompt, "setsid", 3},
		{Prompt, "fork", 3},
		{Prompt, "ignore", 3},
		{Prompt, "hold", 3},
		{Prompt, "storm", 2},
		{Prompt, "bare", 2},
	}
	attacks = []weighted{{Kill, "", 10}, {Stop, "", 7}, {FillDisk, "", 1}, {KillServer, "", 1}}
)

// NewPlan draws a plan: for agents agents, of which the first third is the control group,
// over so much time. Whatever the seed, the disk is filled and the server killed
// at least once.
func NewPlan(seed uint64, agents int, long time.Duration) Plan {
	p := Plan{Seed: seed, Agents: agents, Time: long, Control: (agents + 2) / 3}
	for agent := range agents {
		actions, pause := targetActions, 400*time.Millisecond
		if agent < p.Control {
			actions, pause = controlActions, 250*time.Millisecond
		}
		p.Talk = append(p.Talk, p.talk(agent, actions, pause))
	}
	p.Attack = p.attack()
	return p
}

func (p Plan) draws(actor int) *rand.Rand { return rand.New(rand.NewPCG(p.Seed, uint64(actor))) }

func (p Plan) talk(agent int, actions []weighted, pause time.Duration) (steps []Step) {
	r := p.draws(agent)
	for at := randomDuration(r, pause); at < p.Time; at += randomDuration(r, 2*pause) {
		one := pick(r, actions)
		steps = append(steps, Step{At: at, Do: one.do, Agent: agent, For: 10*time.Millisecond + randomDuration(r, 600*time.Millisecond), Word: one.word})
	}
	return steps
}

func (p Plan) attack() (steps []Step) {
	r := p.draws(p.Agents)
	surely := map[int]Action{1: FillDisk, 2: KillServer} // at so many thirds of the time
	third := 1
	for at := randomDuration(r, time.Second); at < p.Time; at += 100*time.Millisecond + randomDuration(r, 900*time.Millisecond) {
		do := pick(r, attacks).do
		if at > p.Time*time.Duration(third)/3 && third < 3 {
			do = surely[third]
			third++
		}
		s := Step{At: at, Do: do, Agent: p.Control, For: 100*time.Millisecond + randomDuration(r, 1500*time.Millisecond)}
		if targets := p.Agents - p.Control; targets > 0 {
			s.Agent += r.IntN(targets)
		}
		steps = append(steps, s)
	}
	return steps
}

func pick(r *rand.Rand, from []weighted) weighted {
	sum := 0
	for _, w := range from {
		sum += w.of
	}
	n := r.IntN(sum)
	for _, w := range from {
		if n -= w.of; n < 0 {
			return w
		}
	}
	return from[0]
}

func randomDuration(r *rand.Rand, most time.Duration) time.Duration {
	return time.Duration(r.Int64N(int64(most))).Round(time.Millisecond)
}

// Name is what an agent of the plan is called.
func (p Plan) Name(agent int) string {
	if agent < p.Control {
		return fmt.Sprintf("control-%d", agent)
	}
	return fmt.Sprintf("target-%d", agent)
}

// scenario is what the offline model plays, a turn for each word of the plan's
// prompts (SPEC §4.2). What the tools start sleeps for mark seconds, so that it
// can be told from everything else on the machine, but for what a bare one starts:
// that bears the server's tag alone.
func scenario(mark string) ([]byte, error) {
	type step = map[string]any
	shell := func(command string) []step {
		return []step{
			{"tool": step{"name": "shell", "input": step{"command": fmt.Sprintf(command, "sleep "+mark)}}}, {"text": "That was it."},
		}
	}
	turns := []step{}
	for word, steps := range map[string][]step{
		"talk":   {{"text": strings.Repeat("la ", 30), "every_ms": 20}},
		"wait":   {{"text": strings.Repeat("still ", 400), "every_ms": 50}},
		"flood":  {{"flood": step{"count": 1000, "bytes": 40}}},
		"think":  {{"thinking": "Let me think about what to say."}, {"text": "I have thought."}},
		"error":  {{"text": "So far so good."}, {"error": step{"message": "the model is overloaded"}}},
		"exit":   {{"text": "Good bye."}, {"exit": 7}},
		"panic":  {{"text": "Oh no."}, {"crash": "panic"}},
		"die":    {{"text": "Ouch."}, {"crash": "kill"}},
		"setsid": shell("setsid %s & echo begun"),
		"fork":   shell("(setsid sh -c '%[1]s & %[1]s &' &); echo forked"),
		"ignore": shell("trap '' TERM HUP INT; %s & sleep 0.2; echo deaf"),
		"hold":   shell("%s & echo held"),
		"bare":   shell("setsid env -i sleep 86400 & echo bare # not %s"),
		"storm":  shell("for i in 1 2 3 4 5 6 7 8 9 10 11 12; do (setsid %s &); done; echo stormy"),
	} {
		turns = append(turns, step{"match": prompt(word), "steps": steps})
	}
	return json.Marshal(step{"turns": turns, "after": "offline"}, json.Deterministic(true))
}

// prompt is how a message asks for a turn of the scenario.
func prompt(word string) string { return "chaos " + word + "." }
