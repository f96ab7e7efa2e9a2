// Package toolenv is the environment of an agent's tools: its directory, what it may do
// there, and the tools that follow from both.
//
//	env, err := toolenv.Open(toolenv.Options{Cwd: dir, Permissions: asked, Parent: parent})
//	registry := env.Tools()          // for the next turn
//	err = env.SetCwd(dir, protocol.WithinCeiling)            // holds from the turn after
//	err = env.SetPermissions(asked, protocol.WithinCeiling)  // holds at once
//
// An Env is safe for concurrent use and starts no goroutine. A turn that
// runs keeps the tools and the directory it began with, but each of its calls is
// judged by the permissions of the moment, also while it waits for an approval.
// Nobody can move it beyond its ceiling. See SPEC.md §4.5.
package toolenv
