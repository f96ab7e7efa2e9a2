package agents_test

import (
	"errors"
	"testing"

	"nexus.internal/bridge/agents"
	"nexus.internal/bridge/api"
	"nexus.internal/supervisor/supervisortest"
)

func tokens(n uint64) *api.Limits { return &api.Limits{Tokens: &n} }

// A saved agent is not continued with a looser limit than it has, which would silently not
// hold.
func TestLimitsOfASavedAgent(t *testing.T) {
	h := newHouse(t, supervisortest.Play{})
	h.save("saved", savedText)
	h.limits["saved"] = *tokens(7)
	for _, tt := range []struct {
		given *api.Limits
		kind  api.ErrorKind
	}{
		{tokens(8), api.KindInvalidParams},
		{tokens(0), api.KindInvalidParams},
		{tokens(7), ""},
		{tokens(6), ""},
		{nil, ""},
		{&api.Limits{MemoryBytes: new(uint64(1))}, ""},
	} {
		h.limits["saved"] = *tokens(7)
		_, from, err := h.Create(t.Context(), person(), api.CreateAgentParams{AgentID: new("saved"), Limits: tt.given})
		if tt.kind != "" {
			want(t, err, tt.kind)
			if got := err.Error(); got != "Invalid parameter limits.tokens: the saved agent saved has 7" {
				t.Errorf("got %s", got)
			}
			continue
		}
		if err != nil || from != agents.WasSaved {
			t.Fatalf("%+v: %q, %v", tt.given, from, err)
		}
		h.destroy("saved")
		h.save("saved", savedText)
	}
}

// Limits are changed whether the agent runs or not, and hold for what it begins later.
func TestSetLimits(t *testing.T) {
	h := newHouse(t, supervisortest.Play{})
	denied := errors.New("denied")
	var raised []string
	raise := func(limit string) error {
		raised = append(raised, limit)
		return denied
	}
	may := func(string) error { return nil }
	_, err := h.Registry.SetLimits("nobody", *tokens(1), may)
	want(t, err, api.KindAgentNotFound)
	_, err = h.Registry.Limits("nobody")
	want(t, err, api.KindAgentNotFound)

	h.save("saved", savedText)
	h.limits["saved"] = *tokens(7)
	for given, loosens := range map[uint64]bool{8: true, 0: true, 7: false, 6: false} {
		h.limits["saved"] = *tokens(7)
		raised = nil
		got, err := h.Registry.SetLimits("saved", *tokens(given), raise)
		if loosens != errors.Is(err, denied) || loosens != (len(raised) == 1 && raised[0] == "limits.tokens") || !loosens && got.Limits.Tokens != given {
			t.Errorf("%d: got %+v, %v, raised %v", given, got, err, raised)
		}
	}
	if got, err := h.Registry.SetLimits("saved", *tokens(9), may); err != nil || got.Limits.Tokens != 9 {
		t.Errorf("raised: %+v, %v", got, err)
	}
	if _, err := h.sup.Agent("saved"); err == nil {
		t.Error("the agent was started")
	}

	a := h.made("trusted", "")
	if _, err := h.Registry.SetLimits("trusted", api.Limits{Tokens: new(uint64(3)), Agents: new(uint64(5))}, may); err != nil {
		t.Fatal(err)
	}
	if got := a.Info().MaxAgents; got == nil || *got != 5 {
		t.Errorf("the agent may have %v agents", got)
	}
	for given, same := range map[*api.Limits]bool{tokens(3): true, tokens(4): false, {Agents: new(uint64(5))}: true} {
		err := h.CheckSame(t.Context(), a, api.CreateAgentParams{AgentID: new("trusted"), Limits: given})
		if same != (err == nil) {
			t.Errorf("%+v: got %v", *given, err)
		}
	}
}
