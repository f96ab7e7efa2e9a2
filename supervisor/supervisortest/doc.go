// Package supervisortest has a launcher without processes: children that play
// a script in memory, for tests of the supervisor and of what stands on it.
//
//	launcher := &supervisortest.Launcher{Plan: func(s supervisor.Spec, n int) supervisortest.Play {
//		return supervisortest.Play{Prompt: func(c *supervisortest.Child, p protocol.Prompt) {
//			c.Say("one ")
//			c.Sleep(time.Second)
//			c.Crash(supervisor.Exit{Code: 3})
//		}}
//	}}
//
// The zero Launcher's children echo: a prompt's text comes back as one
// text_delta, then agent_end and the response; the other commands are answered
// plausibly, and an agent's conversation outlives its incarnations. Everything
// runs under testing/synctest. All goroutines of a child are joined by its
// Stop; a script must return when [Child.Gone] is closed, which all methods of
// Child see to by themselves.
package supervisortest
