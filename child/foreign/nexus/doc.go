// Package nexus runs a nexus-child of another build, or any other child that speaks the child
// protocol of SPEC.md §3: JSON lines, ready first, one turn at a time.
//
//	driver := nexus.Driver{}
//	session, err := driver.Open(ctx, opening)
//
// The program is started with the flags that every such child has: --continue, --model, --system. It keeps a
// journal of its own, in its own home, by which it goes on with its conversation. Questions of its
// tools are decided on as those of all programs; it is not offered to ask for other agents. Images
// are named in the text alone. See SPEC.md §4.11.
package nexus
