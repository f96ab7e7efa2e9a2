package rpc

import (
	"context"
	"net/http"
	"sync"

	"nexus.internal/bridge/api"
	"nexus.internal/protocol/jsonrpc"
)

// MaxBatchAnswer bounds all results of a batch, in bytes (SPEC §7).
const MaxBatchAnswer = 16 << 20

// ServeBatch runs all items at once, each as a call that make returns, and answers in their
// order. body is nil if nothing is to be answered. ended gets the record of each item, in
// the order in which they end, one at a time; that of an item that is no request has a Kind
// alone.
func (r *Router) ServeBatch(ctx context.Context, items []jsonrpc.Item, make_ func(jsonrpc.Request) *Call, ended func(Record)) (body []byte, status int) {
	responses := make([]*jsonrpc.Response, len(items))
	statuses := make([]int, len(items))
	var running sync.WaitGroup
	var one sync.Mutex // held while ended is called
	done := func(record Record) {
		one.Lock()
		defer one.Unlock()
		ended(record)
	}
	for i, item := range items {
		if item.Refused != nil {
			responses[i] = item.Refused
			done(Refused(item.Refused.Error))
			continue
		}
		running.Go(func() {
			response, record := r.Serve(ctx, make_(item.Request), nil)
			responses[i], statuses[i] = response, record.Status
			done(record)
		})
	}
	running.Wait()
	return joinBatch(responses, statuses)
}

// joinBatch writes the responses that are there as an array; nil if none is. A
// result that would make it longer than MaxBatchAnswer gives way to an error.
// The status is 200, or 404 if the agent of the path is what all items lack.
func joinBatch(responses []*jsonrpc.Response, statuses []int) (body []byte, status int) {
	results, answers, lacking := 0, 0, 0
	for i, r := range responses {
		if r == nil {
			continue
		}
		answers++
		if statuses[i] == http.StatusNotFound {
			lacking++
		}
		if results += len(r.Result); results > MaxBatchAnswer {
			results -= len(r.Result)
			r = &jsonrpc.Response{ID: r.ID, Error: answerTooLarge.Err}
		}
		if body == nil {
			body = append(body, '[')
		} else {
			body = append(body, ',')
		}
		body = jsonrpc.AppendResponse(body, *r)
	}
	if body == nil {
		return nil, http.StatusNoContent
	}
	if lacking == answers {
		return append(body, ']'), http.StatusNotFound
	}
	return append(body, ']'), http.StatusOK
}

var answerTooLarge = ToError(&api.Error{
	Kind: api.KindResponseTooLarge, Details: "the results of a batch have at most 16777216 bytes together", Suggestions: []string{"Ask in smaller batches."},
})
