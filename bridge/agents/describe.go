package agents

import (
	"cmp"
	"time"

	"nexus.internal/bridge/api"
	"nexus.internal/protocol"
	"nexus.internal/supervisor"
)

// Describe is an agent as list_agents has it; children is how many it has created.
func Describe(info supervisor.Info, children int) api.AgentInfo {
	out := api.AgentInfo{
		AgentID:        info.ID,
		CreatedAt:      info.CreatedAt.UTC().Truncate(time.Millisecond).Format(time.RFC3339Nano),
		ShouldShutdown: info.ShouldShutdown,
		State:          info.State.String(),
		Incarnation:    info.Incarnation,
		Restarts:       info.Restarts,
		TakenOverFrom:  info.TakenFrom,
		IsTemp:         api.IsTemp(info.ID),
		Kind:           Known(info.Kind),
		ParentAgentID:  Known(info.Labels.Parent),
		Provenance:     cmp.Or(info.Labels.Provenance, api.ProvenanceUser),
		ChildCount:     children,
		Queued:         len(info.Waiting),

		PendingPermissions: len(info.Asked),
		RequestID:          Known(info.Running),
		LastRestartReason:  Known(string(info.LastRestart)),
		LastError:          Known(info.LastError),
	}
	if info.PID > 0 {
		out.PID = &info.PID
	}
	if u := info.Update; u != nil {
		out.MessageCount = u.MessageCount
		out.Model, out.PermissionLevel = Known(u.Model), Known(u.Preset)
		out.LastActionAt = u.LastActionAt
	}
	out.Cwd, out.LostCwd = Cwd(info), info.Labels.LostCwd
	if info.Labels.CwdLost != protocol.CwdLostWait {
		out.CwdLost = Known(info.Labels.CwdLost)
	}
	return out
}

// Cwd is where an agent works: what its process said last, else where it was started; nil
// if neither is known.
func Cwd(info supervisor.Info) *string {
	if info.Update != nil && info.Update.Cwd != "" {
		return &info.Update.Cwd
	}
	return Known(info.Labels.Cwd)
}

// Known is a pointer to s, nil if there is nothing in it.
func Known(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
