// Package supervisor keeps agents alive: one process per agent, one turn at a
// time, one outcome for each accepted prompt.
//
//	s := supervisor.New(supervisor.Options{Launcher: launcher, Log: log})
//	go s.Run(ctx)                                  // stops everything when ctx ends
//	agent, err := s.Start(ctx, supervisor.Spec{ID: "alice", Cwd: dir})
//	turn, err := agent.Prompt(ctx, protocol.Prompt{ID: id, Message: "hello"}, supervisor.PromptOptions{})
//	result, err := turn.Wait(ctx)
//
// What an agent is doing changes in one function, Agent.update, which holds the
// agent's mutex and in which nothing blocks. What an update leads to and may block (a
// command to write, an outcome to record) runs after it. Each incarnation has one
// goroutine that launches it, reads its frames in order and accounts for its end;
// commands are written by their callers, in the order they were accepted. So a
// caller's prompt and a child's answer take no detour, and an idle agent costs one
// goroutine here and one timer. All exported methods are safe for concurrent use. All
// goroutines are joined by Remove and Run.
//
// What an agent asks for by host_call is answered by [Spec.Host], in a
// goroutine for each call that ends with the turn that asked. What one agent
// asks of another goes by [Agent.Delegate], which refuses a turn that would
// wait for itself and cancels what nobody waits for any more.
//
// The package knows no processes and no network: a [Launcher] makes
// incarnations. Package supervisor/stdio has the real one, package
// supervisor/supervisortest one that plays in memory. It never sends a prompt
// twice, never looks into what an agent says beyond joining its text, and
// saves nothing: conversations are the child's to keep. See SPEC §5.
package supervisor
