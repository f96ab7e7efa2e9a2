package supervisortest

import (
	"nexus.internal/protocol"
)

// Echo is the default turn: the prompt's text comes back as one delta.
func Echo(c *Child, p protocol.Prompt) {
	c.Say(p.Message)
	c.Finish(p, p.Message)
}

// UntilAborted is a turn that says "working" and goes on until it is
// cancelled.
func UntilAborted(c *Child, p protocol.Prompt) {
	c.Say("working")
	select {
	case <-c.Aborted():
		c.Finish(p, "working")
	case <-c.Gone():
	}
}

// Hang is a turn that says "working" and never ends, whatever is asked.
func Hang(c *Child, p protocol.Prompt) {
	c.Say("working")
	c.Hang()
}

// answer is what a child does with a command that its play left alone.
func (c *Child) answer(cmd protocol.Command) {
	type ok map[string]any
	switch cmd := cmd.(type) {
	case protocol.Abort:
		c.cancel()
		c.Respond(cmd, ok{"ok": true})
	case protocol.Ping:
		c.Respond(cmd, ok{"ok": true})
	case protocol.GetState:
		streaming, turn := c.Turn()
		c.Respond(cmd, ok{
			"ok": true, "streaming": streaming, "turn_id": turn, "model": c.modelName(), "provider": "test",
			"session_id": "session-" + c.spec.ID, "message_count": len(c.Messages()), "cwd": "/", "preset": "sandboxed",
			"total_tokens": 2 * len(c.Messages()), "budget_tokens": 1000, "halted_at_iteration_limit": false,
		})
	case protocol.GetMessages:
		messages := c.Messages()
		offset := 0
		if cmd.Offset != nil {
			offset = int(min(*cmd.Offset, uint64(len(messages))))
		}
		page := messages[offset:]
		if cmd.Limit != nil {
			page = page[:min(*cmd.Limit, uint64(len(page)))]
		}
		c.Respond(cmd, ok{"ok": true, "messages": page, "total": len(messages), "offset": offset})
	case protocol.SetModel:
		c.setModel(cmd.Model)
		c.Respond(cmd, ok{"ok": true, "model": cmd.Model})
	case protocol.SetSettings:
		c.setSettings(cmd)
	case protocol.SetToolOutput:
		c.toolOutput.Store(cmd.On)
		c.Respond(cmd, ok{"ok": true})
	case protocol.GetAvailableModels:
		c.Respond(cmd, ok{"ok": true, "models": []ok{
			{"provider": "test", "model_id": "echo", "model_name": "Echo", "context_window": 1000},
		}})
	case protocol.GetSessionStats:
		n := len(c.Messages())
		c.Respond(cmd, ok{
			"ok": true, "input_tokens": n, "output_tokens": n, "cache_read_input_tokens": 0,
			"cache_creation_input_tokens": 0, "cost": 0, "message_count": n, "model": c.modelName(),
			"session_id": "session-" + c.spec.ID,
		})
	case protocol.ToolsList:
		c.Respond(cmd, ok{"ok": true, "tools": []ok{}})
	case protocol.HostResult:
		c.Respond(cmd, c.known(cmd.CallID, cmd))
	case protocol.PermissionResponse:
		c.Respond(cmd, c.known(cmd.RequestID, cmd))
	case protocol.UpdateContext:
		c.Respond(cmd, ok{"ok": true})
	case protocol.ListJobs:
		c.Respond(cmd, ok{"ok": true, "jobs": []ok{
			{"job_id": "1", "command": "make serve", "running": true, "started_at": "2026-01-02T03:04:05Z", "output_bytes": 120},
		}})
	case protocol.GetNotes:
		c.Respond(cmd, ok{"ok": true, "notes": []ok{}})
	case protocol.SetCwd:
		c.Respond(cmd, ok{"ok": true, "cwd": cmd.Cwd})
	case protocol.RevokeAllowances:
		c.Respond(cmd, ok{"ok": true, "revoked": len(cmd.Allowances), "allowances": []ok{}})
	case protocol.SetSystemPrompt:
		c.Respond(cmd, ok{"ok": true, "system_prompt_path": nil})
	case protocol.SetPermissions:
		c.Respond(cmd, ok{"ok": true, "permissions": ok{"preset": cmd.Preset}})
	case protocol.Compact:
		c.compact(cmd)
	case protocol.Undo:
		c.undo(cmd)
	case protocol.NewSession:
		c.launcher.mu.Lock()
		c.record.messages = nil
		c.launcher.mu.Unlock()
		c.Respond(cmd, ok{"ok": true, "session_id": "session-" + c.spec.ID})
	default:
		id := cmd.Ident()
		c.Emit(protocol.Error{ID: &id, Message: cmd.Name() + " is not played"})
	}
}

func (c *Child) compact(cmd protocol.Compact) {
	if c.spec.ID == "copycat" { // an agent of another make, of that kind
		c.Respond(cmd, map[string]any{"ok": false, "error": "compact: an agent of kind copycat does not offer this", "reason": protocol.Unsupported})
		return
	}
	c.Respond(cmd, map[string]any{"ok": true, "compacted": false, "reason": "the conversation is short"})
}

func (c *Child) undo(cmd protocol.Undo) {
	messages := c.Messages()
	if len(messages) < 2 {
		c.Respond(cmd, map[string]any{"ok": true, "undone": false, "reason": "there is no turn", "message_count": 0})
		return
	}
	c.launcher.mu.Lock()
	c.record.messages = messages[:len(messages)-2]
	c.launcher.mu.Unlock()
	c.Respond(cmd, map[string]any{"ok": true, "undone": true, "turn_id": messages[len(messages)-2].TurnID, "removed": 2, "message_count": len(messages) - 2})
}

func (c *Child) setModel(model string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.model = model
}

func (c *Child) setSettings(cmd protocol.SetSettings) {
	if protocol.Value(cmd.Settings.FallbackModel) == "nosuch/m" {
		c.Respond(cmd, map[string]any{"ok": false, "error": "set_settings: member \"fallback_model\": unknown provider \"nosuch\""})
		return
	}
	c.mu.Lock()
	c.settings = cmd.Settings.Over(c.settings)
	held := c.settings
	c.mu.Unlock()
	c.Respond(cmd, map[string]any{"ok": true, "settings": held})
}
