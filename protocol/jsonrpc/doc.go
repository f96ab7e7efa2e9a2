// Package jsonrpc reads and writes JSON-RPC 2.0 envelopes: requests,
// notifications, batches and responses. What stands in params and result is
// left raw.
//
//	body := jsonrpc.DecodeBody(data, 100)            // server side
//	for _, item := range body.Items {
//		if item.Refused != nil {
//			out = jsonrpc.AppendResponse(out, *item.Refused)
//			continue
//		}
//		call(item.Request)
//	}
//	line, err := jsonrpc.AppendRequest(nil, request) // client side
//	response, err := jsonrpc.DecodeResponse(data)    // client side
//
// An id is kept as it was written and echoed byte for byte. Members are read
// by exact case; a member that stands twice, or that differs from one of the
// envelope's in case alone, is refused, since two readers could disagree about
// it. Other unknown members are ignored.
//
// All functions are safe for concurrent use. What they return shares memory
// with their input where it holds raw JSON. The package does no I/O and routes
// nothing. See SPEC §6.1 and §6.2.
package jsonrpc
