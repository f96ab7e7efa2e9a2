// Package accepted has the machines of a cluster know which prompts the owner of an agent has accepted since the agent's files were shipped last.
//
//	bucket, err := accepted.Open(ctx, js, "farm", 3)
//	list, before, err := bucket.Take(ctx, "worker-1", claim.Epoch, false) // before is what the last owner accepted
//	err = list.Accept(ctx, accepted.Prompt{ID: "r-1", SHA256: sum})
//	mark := list.Mark() // and once the files were shipped as they are now:
//	list.Shipped(mark)
//
// The list is in the memory of a majority of the machines, and on no disk, so it is agreed on several times sooner than what the mirror keeps. It is lost if a majority
// of the machines end at once. Each change follows the one that the owner knows to be the last: Take writes one, so that an earlier owner's are refused from then
// on. See supervisor/SUPERVISION.md, §5.10.
package accepted
