package rpc

import (
	"bytes"

	"nexus.internal/protocol/jsonrpc"
)

// JoinBatch lets a test see the bound of a batch's answer without 16 MiB of
// conversation.
func JoinBatch(responses []*jsonrpc.Response, statuses []int) (body []byte, status int) {
	a := make(batchAnswer, len(responses))
	for i, r := range responses {
		a.add(i, r, statuses[i])
	}
	parts, status := a.whole()
	return bytes.Join(parts, nil), status
}

// SplitTarget lets a test see what a host call's parameters are taken apart into.
var SplitTarget = splitTarget

// BytesInUse is how many bytes the calls of all keys hold.
func (b *Budget) BytesInUse() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.held
}
