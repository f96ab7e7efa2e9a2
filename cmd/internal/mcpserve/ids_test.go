package mcpserve

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// An id that the library would take for another one is refused by name, and a cancellation of such a one is of no request.
func TestIDs(t *testing.T) {
	for id, taken := range map[string]bool{
		`1`: true, `"a"`: true, `""`: true, `-9007199254740992`: true, `9007199254740993`: false, `1.5`: false, `1e3`: false, `99999999999999999999999`: false,
	} {
		var out bytes.Buffer
		s := newStdio(strings.NewReader(""), &out)
		message, err := s.decode(fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"method":"ping"}`, id))
		if err != nil || (message != nil) != taken {
			t.Errorf("%s: %v, %v", id, message, err)
		}
		if refused := strings.Contains(out.String(), `"id":`+id+`,`) && strings.Contains(out.String(), "is a string or a whole number of at most 9007199254740992"); refused == taken {
			t.Errorf("%s is answered by %q", id, out.String())
		}
		message, err = s.decode(fmt.Appendf(nil, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%s}}`, id))
		if err != nil || (message != nil) != taken {
			t.Errorf("a cancellation of %s: %v, %v", id, message, err)
		}
	}
}

// slow is a tool that goes on until it is told to end.
type slow struct{ began, end chan struct{} }

func (s slow) call(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
	s.began <- struct{}{}
	<-s.end
	return &mcp.CallToolResult{}, nil, nil
}

// A request whose id another one has that runs is answered with an error, which the SDK drops, and the other one goes on. Once that is answered, its id is
// free; an id that is a string is another one than the number.
func TestIDInUse(t *testing.T) {
	in, lines := io.Pipe()
	answers, out := io.Pipe()
	tool := slow{make(chan struct{}), make(chan struct{})}
	server := mcp.NewServer(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	mcp.AddTool(server, &mcp.Tool{Name: "slow"}, tool.call)
	ended := make(chan error, 1)
	go func() { ended <- server.Run(t.Context(), newStdio(in, out)) }()
	read := bufio.NewScanner(answers)
	say := func(text string) {
		t.Helper()
		if _, err := io.WriteString(lines, text+"\n"); err != nil {
			t.Fatal(err)
		}
	}
	hear := func(want string) {
		t.Helper()
		if !read.Scan() || !strings.Contains(read.Text(), want) {
			t.Fatalf("the answer is %s, want %s", read.Text(), want)
		}
	}
	calling := func(id string) string {
		return `{"jsonrpc":"2.0","id":` + id + `,"method":"tools/call","params":{"name":"slow","arguments":{}}}`
	}
	say(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`)
	hear(`"id":0,"result"`)
	say(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	for range 2 {
		say(calling("5"))
		<-tool.began
		say(calling("5") + "\n" + `{"jsonrpc":"2.0","id":6,"method":"ping"}`)
		hear(`{"jsonrpc":"2.0","id":5,"error":{"code":-32600,"message":"Invalid Request","data":{"type":"INVALID_REQUEST","details":"the id 5 is in use by a request that runs"`)
		hear(`"id":6,"result"`)
		say(calling(`"5"`))
		<-tool.began
		tool.end <- struct{}{}
		tool.end <- struct{}{}
		for range 2 { // in any order
			hear(`"result":{"content":[]`)
		}
	}
	if err := errors.Join(lines.Close(), <-ended); err != nil {
		t.Error(err)
	}
}
