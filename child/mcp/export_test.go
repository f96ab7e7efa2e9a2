package mcp

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"go.uber.org/zap"
)

// ToolName is the name of a server's tool.
func ToolName(server, tool string) string { return toolName(nameKey(server), tool) }

// Filter is what is passed on of a stream of events, and how it ended.
func Filter(stream []byte) ([]byte, error) {
	e := &events{
		body: io.NopCloser(nil), src: bufio.NewReader(bytes.NewReader(stream)), limit: &flowLimit{endConnection: func(error) {}},
	}
	return io.ReadAll(e)
}

// Messages are those that a program's output has, up to its end or to what is
// not let pass.
func Messages(stdout []byte) ([]jsonrpc.Message, error) {
	p := newStdioTransport(printed{bytes.NewReader(stdout)}, &flowLimit{endConnection: func(error) {}}, zap.NewNop())
	var all []jsonrpc.Message
	for {
		msg, err := p.Read(context.Background())
		if err != nil {
			return all, err
		}
		all = append(all, msg)
	}
}

// printed is a program that has said all that it will.
type printed struct{ io.Reader }

func (p printed) Stdin() Input                     { return nil }
func (p printed) Stdout() io.Reader                { return p.Reader }
func (p printed) Kill()                            {}
func (p printed) Wait() error                      { return nil }
func (p printed) Close()                           {}
func (p printed) SetWriteDeadline(time.Time) error { return nil }

// Sanitize is what becomes of a message; nil if it stays.
func Sanitize(message []byte) ([]byte, error) { return sanitize(message) }
