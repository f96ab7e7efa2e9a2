// Package mirror keeps the files of an agent on several machines, in a stream of NATS JetStream.
//
//	stream, err := mirror.Open(ctx, js, "farm", 3, 0)
//	m, err := stream.Take(ctx, mirror.Options{Agent: "worker-1", Epoch: claim.Epoch, Root: sessions, Paths: paths, Scratch: dir})
//	err = m.Restore(ctx, nil) // only after another machine had the agent: its files as they were shipped last
//	err = m.Sync(ctx)    // what is on this machine's disk now is on a majority's
//
// What is large goes to an object store beside it, and the stream names it.
//
// An agent has one subject of the stream. Each message follows the one that its owner knows to be the last: Take
// writes one, so that whatever an earlier owner sends is refused from then on, however late it comes ([ErrFenced]). A
// lease alone would be no fence. The first Sync ships the files whole, the next ones what was appended, or the
// files that have changed otherwise; once much more was shipped than there is, they are shipped whole again, and what
// came before is removed.
package mirror
