package mcp

import (
	"bytes"
	"io"
	"time"

	"go.uber.org/zap"
)

// ToolName is the name of a server's tool.
func ToolName(server, tool string) string { return toolName(nameKey(server), tool) }

// Receive reads a program's output up to its end, or to what ends the connection. It reports
// whether call 1 has its answer, how many messages wait to be sent, and why it ended.
func Receive(stdout []byte) (answered bool, outbox int, reason error) {
	answers := make(chan incoming, 1)
	c := newClient(&flowLimit{}, "/", make(chan struct{}, 1))
	c.waiting[1] = answers
	p := newStdioTransport(printed{bytes.NewReader(stdout)}, c, func(err error) { reason = err }, zap.NewNop())
	<-p.done
	return len(answers) > 0, len(c.outbox), reason
}

// printed is a program that has said all that it will.
type printed struct{ io.Reader }

func (p printed) Stdin() Input                     { return nil }
func (p printed) Stdout() io.Reader                { return p.Reader }
func (p printed) Kill()                            {}
func (p printed) Wait() error                      { return nil }
func (p printed) Close()                           {}
func (p printed) SetWriteDeadline(time.Time) error { return nil }

// Texts are the texts of a result, read as that of a call, of a resource and of a prompt.
func Texts(result []byte) (texts [3]string, err error) {
	b := func() *resultBuilder { return (&managedServer{manager: &Manager{}}).newBuilder() }
	var call callResult
	if err := decodeResult(result, &call); err != nil {
		return texts, err
	}
	var read resourceResult
	if err := decodeResult(result, &read); err != nil {
		return texts, err
	}
	var prompt promptResult
	if err := decodeResult(result, &prompt); err != nil {
		return texts, err
	}
	texts[0] = call.build(b()).Text
	texts[1] = read.build(b()).Text
	texts[2] = prompt.build(b()).Text
	return texts, nil
}
