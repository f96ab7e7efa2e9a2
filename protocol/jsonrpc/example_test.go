package jsonrpc_test

import (
	"fmt"

	"github.com/go-json-experiment/json/jsontext"

	"nexus.internal/protocol/jsonrpc"
)

func ExampleDecodeBody() {
	body := jsonrpc.DecodeBody([]byte(`[{"jsonrpc":"2.0","method":"list_agents","id":"a"}, {"id":2}]`), 100)
	for _, item := range body.Items {
		if item.Refused != nil {
			fmt.Println(item.Refused.ID, item.Refused.Error, "-", item.Refused.Error.Data.Details)
			continue
		}
		fmt.Println(item.Request.ID, item.Request.Method)
	}
	// Output:
	// "a" list_agents
	// 2 Invalid Request (-32600) - member "jsonrpc" must be "2.0"
}

func ExampleAppendRequest() {
	line, err := jsonrpc.AppendRequest(nil, jsonrpc.Request{
		Method: "send", Params: jsontext.Value(`{"content":"Hello"}`), ID: jsonrpc.NumberID(2),
	})
	fmt.Printf("%s %v\n", line, err)
	// Output: {"jsonrpc":"2.0","method":"send","params":{"content":"Hello"},"id":2} <nil>
}

func ExampleDecodeResponse() {
	response, err := jsonrpc.DecodeResponse([]byte(`{"jsonrpc":"2.0","id":2,"error":{"code":-32602,"message":"Missing required parameter: content"}}`))
	fmt.Println(response.ID, response.Error, err)
	// Output: 2 Missing required parameter: content (-32602) <nil>
}
