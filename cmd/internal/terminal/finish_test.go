package terminal

import (
	"slices"
	"testing"

	"nexus.internal/bridge/api"
)

// At the end of a talk temporary agents go that were created here and do nothing, with what they created; why a server goes on
// has all agents that it does so for.
func TestWhatIsLeft(t *testing.T) {
	agent := func(id, by string, busy bool) api.AgentInfo {
		a := api.AgentInfo{AgentID: id, IsTemp: api.IsTemp(id)}
		if by != "" {
			a.ParentAgentID = &by
		}
		if busy {
			a.RequestID = new("1")
		}
		return a
	}
	var m met
	m.add("zz", false)
	m.add(".1", true)
	m.add(".2", true)
	m.add(".3", false)
	for _, tt := range []struct {
		agents []api.AgentInfo
		done   []string
		why    string
	}{
		{nil, nil, ""},
		{[]api.AgentInfo{agent("zz", "", false), agent("kid", "zz", false), agent("grandkid", "kid", false)}, nil, ""},
		{[]api.AgentInfo{agent(".1", "", false), agent("kid", ".1", false), agent(".2", "", false), agent(".3", "", false)}, []string{".1", ".2"}, ""},
		{[]api.AgentInfo{agent(".1", "", false), agent("kid", ".1", false), agent("grandkid", "kid", true)}, nil, "grandkid is at work"},
		{[]api.AgentInfo{agent("zz", "", true), agent("x", "", false), agent(".2", "", true)}, nil, "zz and .2 are at work, and it runs x, not of this talk"},
		{
			[]api.AgentInfo{agent("a", "", true), agent("b", "", true), agent("c", "", true), agent("d", "", true), agent("e", "", true), agent("x", "", false), agent("y", "x", false)},
			nil, "a, b, c and 2 more are at work, and it runs x and y, not of this talk",
		},
	} {
		l := leftOf(tt.agents, &m)
		if !slices.Equal(l.done, tt.done) || l.reasons("nexus") != tt.why {
			t.Errorf("%+v: done %q, why %q", tt.agents, l.done, l.reasons("nexus"))
		}
	}
	queued := agent("zz", "", false)
	queued.Queued = 1
	if l := leftOf([]api.AgentInfo{queued}, &m); l.reasons("nexus") != "zz is at work" {
		t.Errorf("%+v", l)
	}
	queued.PendingPermissions = 1
	more := []api.AgentInfo{queued, agent("b", "", true)}
	if l := leftOf(more, &m); l.reasons("nexus") != "zz waits for an approval (nexus approvals shows it), and b is at work" {
		t.Errorf("%+v", l)
	}
}
