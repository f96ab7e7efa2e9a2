package methods

import (
	"context"
	"sync"

	"github.com/go-json-experiment/json/jsontext"
	"go.uber.org/zap"

	"nexus.internal/bridge/agents"
	"nexus.internal/bridge/api"
	"nexus.internal/bridge/auth"
	"nexus.internal/bridge/openrpc"
	"nexus.internal/bridge/plan"
	"nexus.internal/bridge/rpc"
	"nexus.internal/bridge/task"
	"nexus.internal/protocol/notes"
)

// CodeChecker looks at code for validate_code. It is safe for concurrent use.
type CodeChecker interface {
	// Check looks at code within ctx. A *protocol.CodeError reaches the client.
	Check(ctx context.Context, p api.ValidateCodeParams) (api.ValidateCodeResult, error)
}

// Nodes are the machines that the server is one of. It is safe for concurrent use.
type Nodes interface {
	Nodes() api.ListNodesResult
	// Label changes the labels of this machine, and returns all. An error of the labels is an [api.Error].
	Label(set map[string]string, remove []string) (labels map[string]string, err error)
	// Remove removes another machine from the cluster, and returns once all is settled, or ctx has ended, which is no error. One of the machine is an [api.Error].
	Remove(ctx context.Context, node string, force bool) (api.RemoveNodeResult, error)
}

// Options are what the handlers need, all of it.
type Options struct {
	Nodes   Nodes
	Agents  *agents.Registry
	Plans   *plan.Runner
	Tasks   *task.Runner
	Keys    *auth.Keyring
	Codes   *auth.Codes // of the page
	Checker CodeChecker
	// Notes are what agents that are made later are told.
	Notes *notes.File
	// Requests are closed by shutdown_server, which ends the server.
	Requests *rpc.DrainGroup
	// Addr is the host and port of the server, Version its version.
	Addr, Version string
	Log           *zap.Logger
}

type (
	agentMethods struct {
		agents   *agents.Registry
		nodes    Nodes
		turns    *turnMethods
		requests *rpc.DrainGroup
	}
	turnMethods struct {
		agents *agents.Registry
		plans  *plan.Runner
		tasks  *task.Runner
		log    *zap.Logger
	}
	conversationMethods struct{ agents *agents.Registry }
	settingsMethods     struct {
		agents *agents.Registry
		notes  *notes.File
	}
	sessionMethods struct{ agents *agents.Registry }
	mcpMethods     struct{ agents *agents.Registry }
	taskMethods    struct {
		agents  *agents.Registry
		tasks   *task.Runner
		checker CodeChecker
		checks  checkTurns
	}
	keyMethods struct {
		keys  *auth.Keyring
		codes *auth.Codes
		addr  string
	}
)

// Register gives each method of the table its code.
func Register(r *rpc.Router, o Options) {
	turns := &turnMethods{agents: o.Agents, plans: o.Plans, tasks: o.Tasks, log: o.Log}
	all := &agentMethods{agents: o.Agents, nodes: o.Nodes, turns: turns, requests: o.Requests}
	conversation, settings := &conversationMethods{o.Agents}, &settingsMethods{o.Agents, o.Notes}
	sessions, mcp := &sessionMethods{o.Agents}, &mcpMethods{o.Agents}
	tasks := &taskMethods{agents: o.Agents, tasks: o.Tasks, checker: o.Checker, checks: newCheckTurns()}
	keys := &keyMethods{keys: o.Keys, codes: o.Codes, addr: o.Addr}

	rpc.Handle(r, api.CreateAgent, all.create)
	rpc.Handle(r, api.DestroyAgent, all.destroy)
	rpc.HandleEverywhere(r, api.ListAgents, all.list, nil, everyAgent)
	rpc.Handle(r, api.ListKinds, all.kinds)
	rpc.Handle(r, api.ListNodes, all.listNodes)
	rpc.Handle(r, api.DrainNode, all.drainNode)
	rpc.Handle(r, api.LabelNode, all.labelNode)
	rpc.Handle(r, api.RemoveNode, all.removeNode)
	rpc.HandleEverywhere(r, api.GetAgentSummaries, all.summaries, nil, everySummary)
	rpc.Handle(r, api.ShutdownServer, all.shutdownServer)
	document := sync.OnceValues(func() (jsontext.Value, error) { return openrpc.Document(o.Version, "http://"+o.Addr) })
	rpc.HandleRaw(r, api.Discover, func(context.Context, *rpc.Call, api.None) (rpc.Raw[api.DiscoverResult], error) {
		raw, err := document()
		return rpc.Raw[api.DiscoverResult](raw), err
	})

	rpc.HandleStream(r, api.Send, turns.send)
	rpc.Handle(r, api.Cancel, turns.cancel)
	rpc.Handle(r, api.Shutdown, turns.shutdown)

	rpc.Handle(r, api.GetTokens, conversation.tokens)
	rpc.Handle(r, api.GetContext, conversation.context)
	rpc.HandleRaw(r, api.GetMessages, conversation.messages)
	rpc.Handle(r, api.Compact, conversation.compact)
	rpc.Handle(r, api.NewSession, conversation.newSession)
	rpc.Handle(r, api.Undo, conversation.undo)
	rpc.Handle(r, api.ListModels, conversation.listModels)
	rpc.Handle(r, api.GetModel, conversation.model)
	rpc.Handle(r, api.SetModel, conversation.setModel)

	rpc.Handle(r, api.SetCwd, settings.setCwd)
	rpc.Handle(r, api.GetPermissions, settings.getPermissions)
	rpc.Handle(r, api.RevokeAllowances, settings.revokeAllowances)
	rpc.Handle(r, api.SetPermissions, settings.setPermissions)
	rpc.Handle(r, api.GetLimits, settings.getLimits)
	rpc.Handle(r, api.SetLimits, settings.setLimits)
	rpc.Handle(r, api.GetSettings, settings.turnSettings)
	rpc.Handle(r, api.SetSettings, settings.setTurnSettings)
	rpc.Handle(r, api.RespondPermission, settings.respondPermission)
	rpc.Handle(r, api.GetSystemPrompt, settings.getSystemPrompt)
	rpc.Handle(r, api.SetSystemPrompt, settings.setSystemPrompt)
	rpc.Handle(r, api.ListTools, settings.listTools)
	rpc.Handle(r, api.ListJobs, settings.listJobs)
	rpc.Handle(r, api.UpdateContext, settings.updateContext)
	rpc.Handle(r, api.GetNotes, settings.getNotes)

	rpc.HandleEverywhere(r, api.ListSessions, sessions.list, firstSessions, everySession)
	rpc.Handle(r, api.LoadSession, sessions.load)
	rpc.Handle(r, api.SaveSession, sessions.save)
	rpc.Handle(r, api.Fork, sessions.fork)
	rpc.Handle(r, api.CloneSession, sessions.clone)
	rpc.Handle(r, api.RenameSession, sessions.rename)
	rpc.Handle(r, api.DeleteSession, sessions.delete)

	rpc.HandleStream(r, api.ExecuteTask, tasks.execute)
	rpc.HandleStream(r, api.CreatePlan, tasks.createPlan)
	rpc.HandleStream(r, api.RunPlan, o.Plans.Serve)
	rpc.HandleEverywhere(r, api.ListRuns, o.Plans.List, firstRuns, everyRun)
	rpc.Handle(r, api.GetRun, o.Plans.Get)
	rpc.Handle(r, api.ValidateCode, tasks.validateCode)

	rpc.Handle(r, api.CreateKey, keys.create)
	rpc.Handle(r, api.ListKeys, keys.list)
	rpc.Handle(r, api.RevokeKey, keys.revoke)
	rpc.Handle(r, api.RotateKey, keys.rotate)
	rpc.Handle(r, api.CreatePageCode, keys.createPageCode)

	rpc.Handle(r, api.MCPListServers, mcp.list)
	rpc.Handle(r, api.MCPStatus, mcp.status)
	rpc.Handle(r, api.MCPConnect, mcp.connect)
	rpc.Handle(r, api.MCPDisconnect, mcp.disconnect)
	r.MustBeWhole()
}
