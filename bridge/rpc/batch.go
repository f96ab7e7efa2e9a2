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

// ServeBatch runs all items at once, each as a call like the one that is given, and answers in
// their order: the parts make up the body. parts is nil if nothing is to be answered. records
// has that of each item, in the order in which they ended; that of an item that is no request
// has a Kind alone.
func (r *Router) ServeBatch(ctx context.Context, items []jsonrpc.Item, like Call) (parts [][]byte, status int, records []Record) {
	answer := make(batchAnswer, len(items))
	var running sync.WaitGroup
	var one sync.Mutex // guards records
	done := func(record Record) {
		one.Lock()
		defer one.Unlock()
		records = append(records, record)
	}
	for i, item := range items {
		if item.Refused != nil {
			answer.add(i, item.Refused, 0)
			done(Refused(item.Refused.Error))
			continue
		}
		running.Go(func() {
			c := like
			c.Request = item.Request
			response, record := r.Serve(ctx, &c, nil)
			if response != nil {
				c.Share.Work(func() { answer.add(i, response, record.Status) })
			}
			done(record)
		})
	}
	running.Wait()
	parts, status = answer.whole()
	return parts, status, records
}

// batchAnswer is the answer of a batch as its items end. It has no lock: each item ends once,
// and whole comes after all of them.
type batchAnswer []batchItem

// batchItem is the answer of one item.
type batchItem struct {
	response []byte // nil for none
	id       jsonrpc.ID
	result   int // bytes
	lacking  bool
}

// add writes the response of item i, so that its result is not kept beside it.
func (a batchAnswer) add(i int, r *jsonrpc.Response, status int) {
	a[i] = batchItem{
		response: jsonrpc.AppendResponse(make([]byte, 0, len(r.Result)+128), *r),
		id:       r.ID, result: len(r.Result), lacking: status == http.StatusNotFound,
	}
}

// whole is the array of all responses, in parts; nil if there is none. A result that would make
// all of them longer than MaxBatchAnswer gives way to an error. The status is 200, or 404 if the
// agent of the path is what all items lack.
func (a batchAnswer) whole() (parts [][]byte, status int) {
	before, results := []byte("["), 0
	status = http.StatusNotFound
	for _, item := range a {
		if item.response == nil {
			continue
		}
		if !item.lacking {
			status = http.StatusOK
		}
		if results += item.result; results > MaxBatchAnswer {
			results -= item.result
			item.response = jsonrpc.AppendResponse(nil, jsonrpc.Response{ID: item.id, Error: answerTooLarge.Err})
		}
		parts = append(parts, before, item.response)
		before = []byte(",")
	}
	if parts == nil {
		return nil, http.StatusNoContent
	}
	return append(parts, []byte("]")), status
}

var answerTooLarge = ToError(&api.Error{
	Kind: api.KindResponseTooLarge, Details: "the results of a batch have at most 16777216 bytes together", Suggestions: []string{"Ask in smaller batches."},
})
