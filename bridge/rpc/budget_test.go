package rpc_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/tidwall/gjson"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/rpc"
	"nexus.internal/protocol/jsonrpc"
)

// Keys have their own bytes and common ones; what is given back can be taken again.
func TestBudget(t *testing.T) {
	b := rpc.NewBudget(150, 100)
	one, again, other := b.Share("one"), b.Share("one"), b.Share("other")
	for i, step := range []struct {
		share *rpc.Share
		n     int
		want  bool
	}{
		{one, 60, true},
		{again, 41, false}, // over the key's
		{again, 40, true},
		{other, 51, false}, // over all
		{other, 50, true},
		{one, 1, false},
		{one, -10, true},
		{other, 10, true},
		{nil, 1000, true},
	} {
		if got := step.share.Add(step.n); got != step.want {
			t.Errorf("step %d: Add(%d) is %v, want %v", i, step.n, got, step.want)
		}
	}
	for _, s := range []*rpc.Share{one, other, again, nil} {
		s.Close()
	}
	if held := b.BytesInUse(); held != 0 {
		t.Errorf("%d bytes are held when all are closed", held)
	}
}

// A batch of a key that is not full holds no more than the key may hold: the results that do not
// fit become errors item by item. Those of a full key do not count.
func TestBatchStaysWithinTheBudget(t *testing.T) {
	const size, most = 1 << 20, 5 << 20 // bytes
	r := router()
	document := jsontext.Value(`"` + strings.Repeat("x", size) + `"`)
	rpc.HandleRaw(r, api.Discover, func(context.Context, *rpc.Call, api.None) (rpc.Raw[api.DiscoverResult], error) {
		return rpc.Raw[api.DiscoverResult](document), nil
	})
	changed := 0
	rpc.HandleRaw(r, api.LoadSession, func(context.Context, *rpc.Call, api.LoadSessionParams) (rpc.Raw[api.LoadSessionResult], error) {
		changed++
		return rpc.Raw[api.LoadSessionResult](document), nil
	})
	items := make([]jsonrpc.Item, 10)
	for i := range items {
		items[i].Request = jsonrpc.Request{Method: "rpc.discover", ID: jsonrpc.NumberID(int64(i))}
	}
	b := rpc.NewBudget(2*most, most)
	serve := func(share *rpc.Share) map[string]int {
		if !share.AddCalls(len(items)) {
			t.Fatal("no room for the calls")
		}
		parts, status, _ := r.ServeBatch(t.Context(), items, rpc.Call{Share: share})
		if status != 200 {
			t.Errorf("got HTTP %d, want 200", status)
		}
		kinds := map[string]int{}
		for _, one := range gjson.ParseBytes(bytes.Join(parts, nil)).Array() {
			kinds[one.Get("error.data.type").Str]++
		}
		return kinds
	}
	share := b.Share("k")
	if got := fmt.Sprint(serve(share)); got != "map[:4 RATE_LIMITED:6]" {
		t.Errorf("a key's batch has %s", got)
	}
	if held := b.BytesInUse(); held > most || held < 4*size {
		t.Errorf("%d bytes are held for 4 results of %d, at most %d", held, size, most)
	}
	if got := fmt.Sprint(serve(nil)); got != "map[:10]" {
		t.Errorf("a full key's batch has %s", got)
	}

	// A call that changes something was carried out: no client may be told to repeat it.
	call := &rpc.Call{Request: jsonrpc.Request{Method: "load_session", ID: jsonrpc.NumberID(1), Params: []byte(`{"session_name":"s"}`)}, Share: share}
	response, record := r.Serve(t.Context(), call, nil)
	if changed != 1 || record.Status != 200 || response.Error == nil || response.Error.Data.Type != "RESPONSE_TOO_LARGE" ||
		!strings.Contains(response.Error.Data.Details, "was carried out") {
		t.Errorf("%d calls, HTTP %d, %+v", changed, record.Status, response.Error)
	}
	share.Close()
	if held := b.BytesInUse(); held != 0 {
		t.Errorf("%d bytes are held at the end", held)
	}
}
