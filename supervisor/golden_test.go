package supervisor_test

import (
	"path"
	"slices"
	"strings"
	"testing"

	"nexus.internal/fixtures"
	"nexus.internal/protocol"
	"nexus.internal/supervisor"
	"nexus.internal/supervisor/supervisortest"
)

// ownEvents are the events that are the supervisor's and no child's (SPEC §5.6).
var ownEvents = []string{"agent_state", "turn_start", "turn_end", "gap"}

// Each of the supervisor's own events has golden files, one for each shape that
// it takes in the life of an agent that answers, fails, is cancelled, crashes
// and comes back.
func TestGoldenEvents(t *testing.T) {
	play := supervisortest.Play{Prompt: func(c *supervisortest.Child, p protocol.Prompt) {
		switch p.Message {
		case "fail":
			c.Fail(p, `the model says "no"`)
		case "crash once":
			if c.Number() > 2 {
				talk(c, p)
				return
			}
			c.Crash(supervisor.Exit{Code: 3})
		case "crash":
			c.Crash(supervisor.Exit{Code: 3, Stderr: "out of luck"})
		case "cancel":
			supervisortest.UntilAborted(c, p)
		default:
			talk(c, p)
		}
	}}
	got := map[string]string{}
	keep := func(e supervisor.Event) {
		name := e.Type
		for _, member := range []string{"state", "outcome"} {
			if _, value, ok := strings.Cut(string(e.Data), `"`+member+`":"`); ok {
				value, _, _ = strings.Cut(value, `"`)
				name += "-" + value
			}
		}
		if strings.Contains(string(e.Data), `"attempt"`) {
			name += "-again"
		}
		if _, again := got[name]; !again {
			got[name] = string(e.Data)
		}
	}
	run(t, always(play), func(h *house) {
		a := h.start("alice")
		h.outcome(h.prompt(a, "r-1", "k"), supervisor.Completed)
		h.outcome(h.prompt(a, "r-2", "fail"), supervisor.Erred)
		turn := h.prompt(a, "r-3", "cancel")
		if _, err := a.Abort(h.Context(), "r-3"); err != nil {
			h.Fatal(err)
		}
		h.outcome(turn, supervisor.Cancelled)
		h.outcome(h.prompt(a, "r-4", "crash"), supervisor.Crashed)
		h.outcome(h.prompt(a, "r-5", "k"), supervisor.Completed) // after the restart
		h.outcome(h.prompt(a, "r-6", "crash once", supervisor.PromptOptions{Retry: true}), supervisor.Completed)
		for _, e := range h.events(a) {
			keep(e)
		}
		h.say(a, 1000) // more than is kept
		keep(h.read(h.subscribe(a, 3), 1))
	})
	for name, data := range got {
		if typ, _, _ := strings.Cut(name, "-"); slices.Contains(ownEvents, typ) {
			fixtures.Golden(t, "frames/supervisor/"+name+".json", []byte(data+"\n"))
		}
	}
	for _, file := range fixtures.Glob(t, "frames/supervisor/*.json") {
		name := strings.TrimSuffix(path.Base(file), ".json")
		if typ, _, _ := strings.Cut(name, "-"); got[name] == "" && slices.Contains(ownEvents, typ) { // the others are the façade's
			t.Errorf("%s is compared with nothing", file)
		}
	}
}
