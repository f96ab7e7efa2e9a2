// Package permission decides what an agent may do. Decisions are pure: they
// follow from the permissions, the working directory and what was allowed
// before, and look at nothing else.
//
//	held, err := permission.Resolve(asked, presets)      // names of presets become what they stand for
//	held = rights.Intersect(held, ceiling)                // never looser than either
//	policy := permission.Policy{Permissions: held, Cwd: "/home/me/project"}
//	d := policy.Decide(permission.Call{Tool: "write_file", Action: protocol.ActionWrite, Paths: []string{"/etc/hosts"}})
//
// It guards nothing: the runner of the call does, and the kernel under it. Paths
// are absolute and compared as text; a caller that cares where symbolic links
// lead resolves them first, as [Policy.Real] does for those of the policy. All
// functions are safe for concurrent use. The contract is SPEC.md §4.5.
package permission
