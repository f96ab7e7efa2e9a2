package mcp_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidwall/gjson"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"nexus.internal/child/mcp"
	"nexus.internal/child/tool"
	"nexus.internal/protocol"
)

// raw is a server that answers by hand: reply is given each request and writes
// what it likes. initialize and the list of one tool, "t", are taken care of.
func raw(reply func(ctx context.Context, method string, id int64, out io.Writer)) mcp.Start {
	return within(func(ctx context.Context, in io.ReadCloser, out io.WriteCloser) {
		lines := bufio.NewScanner(in)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			method, id := gjson.GetBytes(lines.Bytes(), "method").Str, gjson.GetBytes(lines.Bytes(), "id")
			switch {
			case !id.Exists():
			case method == "initialize":
				answer(out, id.Int(), `{"protocolVersion":"2025-06-18","capabilities":{"tools":{"listChanged":true}},"serverInfo":{"name":"x","version":"1"}}`)
			case method == "tools/list":
				answer(out, id.Int(), `{"tools":[{"name":"t","inputSchema":{"type":"object"}}]}`)
			default:
				reply(ctx, method, id.Int(), out)
			}
		}
	})
}

func answer(out io.Writer, id int64, result string) {
	fmt.Fprintf(out, `{"jsonrpc":"2.0","id":%d,"result":%s}`+"\n", id, result)
}

const fine = `{"content":[{"type":"text","text":"fine"}]}`

// one is the manager of one server, s, in the bubble of the test.
func one(t *testing.T, start mcp.Start) *mcp.Manager {
	t.Helper()
	m := manage(t, mcp.Options{Servers: []mcp.Server{{Name: "s", Command: "x"}}, Start: start})
	m.Prepare(t.Context())
	return m
}

// TestHang is about a call that gets no answer: it fails after a minute, and
// whether the server is still of use is found out by the next one.
func TestHang(t *testing.T) {
	for _, tc := range []struct {
		name  string
		pings bool // it answers pings all the same
		want  int  // programs that were started
	}{
		{"one call hangs", true, 1},
		{"all of it hangs", false, 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				starts, calls := 0, 0
				inner := raw(func(_ context.Context, method string, id int64, out io.Writer) {
					switch {
					case method == "ping" && tc.pings:
						answer(out, id, `{}`)
					case method == "tools/call":
						if calls++; calls > 1 {
							answer(out, id, fine)
						}
					}
				})
				m := one(t, func(ctx context.Context, s mcp.Spec) (mcp.Process, error) { starts++; return inner(ctx, s) })
				began := time.Now()
				fails(t, m, "mcp_s_t", "the MCP server s: no answer after 1m0s")
				if took := time.Since(began); took != mcp.DefaultTimeout {
					t.Errorf("that took %v", took)
				}
				if got := text(t, m, "mcp_s_t"); got != "fine" {
					t.Errorf("the next call gave %q", got)
				}
				if starts != tc.want {
					t.Errorf("%d programs were started, want %d", starts, tc.want)
				}
			})
		})
	}
}

// TestFirstAnswer is about a server whose first answer cannot be used: why is said, where it
// was "it ended".
func TestFirstAnswer(t *testing.T) {
	for _, tt := range []struct{ answer, want string }{
		{`"result":{"protocolVersion":"1999-01-01","capabilities":{},"serverInfo":{"name":"x","version":"1"}}`, `unsupported protocol version: "1999-01-01"`},
		{`"error":{"code":-32602,"message":"too new for me"}`, "too new for me (code -32602)"},
	} {
		synctest.Test(t, func(t *testing.T) {
			m := one(t, within(func(_ context.Context, in io.ReadCloser, out io.WriteCloser) {
				lines := bufio.NewReader(in)
				_, _ = lines.ReadString('\n')
				fmt.Fprintf(out, `{"jsonrpc":"2.0","id":1,%s}`+"\n", tt.answer)
				_, _ = io.Copy(io.Discard, lines)
			}))
			synctest.Wait()
			if got := status(m); got.State != protocol.MCPFailed || !strings.HasPrefix(got.Error, tt.want) {
				t.Errorf("%+v, want %q", got, tt.want)
			}
		})
	}
}

// TestDeafStdin is about a server that stops reading: our writes do not wait for
// ever, nor does a call beyond its time.
func TestDeafStdin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := one(t, raw(func(ctx context.Context, _ string, _ int64, _ io.Writer) { <-ctx.Done() }))
		fails(t, m, "mcp_s_t", "no answer after 1m0s")
		fails(t, m, "mcp_s_t", "the MCP server s")
		synctest.Wait()
	})
}

// TestCancel ends a call: the server is told.
func TestCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ev := &events{started: make(chan struct{}), cancelled: make(chan struct{})}
		m := one(t, serving(ev))
		ctx, cancel := context.WithCancel(t.Context())
		failed := make(chan error)
		go func() {
			_, err := find(t, m, "mcp_s_hang").Run(ctx, tool.Call{Input: input(t)})
			failed <- err
		}()
		<-ev.started
		began := time.Now()
		cancel()
		if err := <-failed; err != context.Canceled {
			t.Errorf("the call ended with %v", err)
		}
		<-ev.cancelled
		if took := time.Since(began); took != 0 {
			t.Errorf("that took %v", took)
		}
		if got := text(t, m, "mcp_s_echo", "text", "still here"); got != "still here" {
			t.Errorf("echo gave %q", got)
		}
	})
}

// TestFlood is about servers that send more than anybody wants. Each costs one
// call, and little memory.
func TestFlood(t *testing.T) {
	endless := func(piece string) func(context.Context, string, int64, io.Writer) {
		return func(ctx context.Context, _ string, _ int64, out io.Writer) {
			for ctx.Err() == nil {
				if _, err := io.WriteString(out, piece); err != nil {
					return
				}
			}
		}
	}
	kib := strings.Repeat("x", 1<<10)
	for _, tc := range []struct {
		name  string
		reply func(context.Context, string, int64, io.Writer)
		want  string
	}{
		{"a line without an end", endless(kib), "it sent a message of more than 8388608 bytes"},
		{"lines that are no messages", endless("Listening…\n"), "it writes to stdout what is no JSON-RPC"},
		{"notifications", endless(`{"jsonrpc":"2.0","method":"notifications/message","params":{"data":"` + kib + `"}}` + "\n"), "it floods"},
		{"changes of lists", endless(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}` + "\n"), "it floods"},
		{"answers to nothing", endless(`{"jsonrpc":"2.0","id":1000000,"result":{"x":"` + kib + `"}}` + "\n"), "it floods"},
		{"requests", endless(`{"jsonrpc":"2.0","id":"a","method":"ping"}` + "\n"), "it floods"},
		{"a huge result", func(_ context.Context, _ string, id int64, out io.Writer) {
			answer(out, id, `{"content":[{"type":"text","text":"`+strings.Repeat("x", 9<<20)+`"}]}`)
		}, "it sent a message of more than 8388608 bytes"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			before := heap()
			calls := 0
			m := one(t, raw(func(ctx context.Context, method string, id int64, out io.Writer) {
				if calls++; calls == 1 {
					tc.reply(ctx, method, id, out)
					return
				}
				answer(out, id, fine)
			}))
			fails(t, m, "mcp_s_t", tc.want)
			if grown := heap() - before; grown > 8<<20 {
				t.Errorf("%d bytes are kept", grown)
			}
			if got := text(t, m, "mcp_s_t"); got != "fine" {
				t.Errorf("the next call gave %q", got)
			}
		})
	}
}

// heap is what is in use, in bytes.
func heap() int64 {
	runtime.GC()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return int64(s.HeapAlloc)
}

// TestRequests is about a server that asks too much: beyond 600 requests a
// minute it gets no answer, and is none the worse for it.
func TestRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var answers atomic.Int32
		ask := func(out io.Writer, n int) {
			for i := range n {
				fmt.Fprintf(out, `{"jsonrpc":"2.0","id":"r%d","method":"ping"}`+"\n", i)
			}
		}
		m := one(t, raw(func(_ context.Context, method string, id int64, out io.Writer) {
			if method == "" {
				answers.Add(1)
				return
			}
			go func() { // our answers are read meanwhile
				ask(out, 601)
				answer(out, id, fine)
			}()
		}))
		for minute := range 2 {
			if got := text(t, m, "mcp_s_t"); got != "fine" {
				t.Errorf("the call gave %q", got)
			}
			synctest.Wait()
			if got := answers.Swap(0); got != 600 {
				t.Errorf("minute %d: %d requests were answered, want 600", minute, got)
			}
			time.Sleep(time.Minute + 1) // in the bubble's time
		}
	})
}

// TestOwnCodes is about errors of a server with codes of its own: they are errors of one call.
func TestOwnCodes(t *testing.T) {
	for _, code := range []int{-32003, -32004, -32000} {
		synctest.Test(t, func(t *testing.T) {
			starts, calls := 0, 0
			inner := raw(func(_ context.Context, _ string, id int64, out io.Writer) {
				calls++
				fmt.Fprintf(out, `{"jsonrpc":"2.0","id":%d,"error":{"code":%d,"message":"no access"}}`+"\n", id, code)
			})
			m := one(t, func(ctx context.Context, s mcp.Spec) (mcp.Process, error) { starts++; return inner(ctx, s) })
			fails(t, m, "mcp_s_t", "the MCP server s: no access")
			if starts != 1 || calls != 1 {
				t.Errorf("code %d: %d starts, %d calls", code, starts, calls)
			}
		})
	}
}

// TestChatter is about a server that says a few things that are no messages:
// they are passed over.
func TestChatter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := one(t, raw(func(_ context.Context, _ string, id int64, out io.Writer) {
			fmt.Fprintf(out, "Starting up…\n\n[]\n{\"a\":1,\"a\":2}\n\xff\r\n")
			fmt.Fprintf(out, `{"level":"debug","id":%d,"error":"none","sent":{"jsonrpc":"2.0"}}`+"\n{\n", id+1)
			fmt.Fprintf(out, `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1}}`+"\r\n")
			answer(out, id, fine)
		}))
		if got := text(t, m, "mcp_s_t"); got != "fine" {
			t.Errorf("got %q", got)
		}
	})
}

// TestMalformed is about a server whose answer is no message: the call, or the start, fails at once and
// says why, and the program is ended. The call waited for its whole time.
func TestMalformed(t *testing.T) {
	nested := strings.Repeat("[", 200_000) + strings.Repeat("]", 200_000)
	for _, tc := range []struct {
		name, answer, want string // %d is the id
	}{
		{"a result twice", `{"jsonrpc":"2.0","id":%d,"result":` + fine + `,"result":{}}`, "duplicate member"},
		{"a member twice, deep inside", `{"result":{"content":[],"a":{"b":1,"b":2}},"id":%d,"jsonrpc":"2.0"}`, "duplicate member"},
		{"nested too deep", `{"jsonrpc":"2.0","id":%d,"result":{"content":[],"x":` + nested + `}}`, "exceeded max depth"},
		{"cut off", `{"jsonrpc":"2.0","id":%d,"result":{"content":[`, "unexpected EOF"},
		{"an error that is a text", `{"jsonrpc":"2.0","id":%d,"error":"no"}`, "error"},
		{"without a result", `{"jsonrpc":"2.0","id":%d}`, "it has neither method nor result nor error"},
		{"another version", `{"jsonrpc":"1.0","id":%d,"result":{}}`, `jsonrpc is not "2.0"`},
		{"no version", `{"id":%d,"result":{}}`, `jsonrpc is not "2.0"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				calls := 0
				m := one(t, raw(func(_ context.Context, _ string, id int64, out io.Writer) {
					if calls++; calls == 1 {
						fmt.Fprintf(out, tc.answer+"\n", id)
						return
					}
					answer(out, id, fine)
				}))
				began := time.Now()
				fails(t, m, "mcp_s_t", "the MCP server s was lost during the call, which may have taken effect: it sent what is no message of JSON-RPC 2.0", tc.want)
				if took := time.Since(began); took != 0 {
					t.Errorf("that took %v", took)
				}
				if got := text(t, m, "mcp_s_t"); got != "fine" {
					t.Errorf("the next call gave %q", got)
				}
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		m := one(t, listing(`{"tools":{}}`, "tools/list", `"result":{"tools":[]},"result":{"tools":[]}`))
		if got := status(m); got.State != protocol.MCPFailed || !strings.Contains(got.Error, "it sent what is no message of JSON-RPC 2.0: duplicate member") {
			t.Errorf("a list with a result twice: %+v", got)
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("that took %v", took)
		}
	})
}

// listing is a server with those capabilities and the tool "t", which answers one method with
// that result or error.
func listing(capabilities, method, reply string) mcp.Start {
	return within(func(_ context.Context, in io.ReadCloser, out io.WriteCloser) {
		lines := bufio.NewScanner(in)
		for lines.Scan() {
			id := gjson.GetBytes(lines.Bytes(), "id").Int()
			switch got := gjson.GetBytes(lines.Bytes(), "method").Str; got {
			case method:
				fmt.Fprintf(out, `{"jsonrpc":"2.0","id":%d,%s}`+"\n", id, reply)
			case "initialize":
				answer(out, id, `{"protocolVersion":"2025-06-18","capabilities":`+capabilities+`,"serverInfo":{"name":"x","version":"1"}}`)
			case "tools/list":
				answer(out, id, `{"tools":[{"name":"t","inputSchema":{"type":"object"}}]}`)
			case "tools/call":
				answer(out, id, fine)
			case "resources/templates/list":
				answer(out, id, `{"resourceTemplates":[]}`)
			}
		}
	})
}

// TestDeclaredInVain is about a server that declares prompts or resources and does not know the
// method that lists them: it has none, and its tools are of use. All of them were lost.
func TestDeclaredInVain(t *testing.T) {
	const unknown = `"error":{"code":-32601,"message":"no"}`
	for _, tc := range []struct{ capability, method string }{{"prompts", "prompts/list"}, {"resources", "resources/list"}} {
		t.Run(tc.capability, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				core, logs := observer.New(zap.WarnLevel)
				m := manage(t, mcp.Options{
					Servers: []mcp.Server{{Name: "s", Command: "x"}}, Start: listing(`{"tools":{},"`+tc.capability+`":{}}`, tc.method, unknown), Log: zap.New(core),
				})
				m.Prepare(t.Context())
				if got := text(t, m, "mcp_s_t"); got != "fine" {
					t.Errorf("the call gave %q", got)
				}
				if tc.capability == "resources" {
					if got := text(t, m, "mcp_s_list_resources"); got != "there are none" {
						t.Errorf("its resources: %q", got)
					}
				}
				entries := logs.FilterMessage("mcp server declares what it does not have").All()
				if len(entries) != 1 || entries[0].ContextMap()["method"] != tc.method {
					t.Errorf("the log has %v", logs.All())
				}
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		m := one(t, listing(`{"tools":{},"prompts":{}}`, "prompts/list", `"error":{"code":-32603,"message":"out of order"}`))
		if got := status(m); got.State != protocol.MCPFailed || !strings.Contains(got.Error, "list its prompts: out of order") {
			t.Errorf("another error: %+v", got)
		}
	})
}

// TestNullResult is about a call that is answered with null: it failed, and was a success without content.
func TestNullResult(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := one(t, raw(func(_ context.Context, _ string, id int64, out io.Writer) { answer(out, id, "null") }))
		fails(t, m, "mcp_s_t", "the MCP server s: its result is not written as the protocol has it: null is no object: the call may have taken effect")
	})
}

// TestManyTools has a list of 100,000 tools on many pages, and one on a page
// that does not fit.
func TestManyTools(t *testing.T) {
	server := func(pageSize int) mcp.Start {
		return within(func(_ context.Context, in io.ReadCloser, out io.WriteCloser) {
			lines := bufio.NewScanner(in)
			for lines.Scan() {
				id := gjson.GetBytes(lines.Bytes(), "id").Int()
				switch gjson.GetBytes(lines.Bytes(), "method").Str {
				case "initialize":
					answer(out, id, `{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"x","version":"1"}}`)
				case "tools/list":
					from := int(gjson.GetBytes(lines.Bytes(), "params.cursor").Int())
					var b strings.Builder
					for i := range pageSize {
						fmt.Fprintf(&b, `,{"name":"tool%d","description":"%s","inputSchema":{"type":"object"}}`, from+i, strings.Repeat("d", 100))
					}
					answer(out, id, fmt.Sprintf(`{"tools":[%s],"nextCursor":"%d"}`, b.String()[1:], from+pageSize))
				}
			}
		})
	}
	t.Run("many pages", func(t *testing.T) {
		m := one(t, server(50))
		if got := status(m); got.Tools != 256 || got.Note != "it has more tools than are taken: allowed_tools in mcp.json chooses" {
			t.Errorf("status %+v", got)
		}
	})
	t.Run("an endless list of others", func(t *testing.T) {
		m := manage(t, mcp.Options{Servers: []mcp.Server{{Name: "s", Command: "x", AllowedTools: []string{"tool7"}}}, Start: server(50)})
		m.Prepare(t.Context())
		if got := status(m); got.Tools != 1 || got.Note == "" {
			t.Errorf("status %+v", got)
		}
	})
	t.Run("one page of small ones", func(t *testing.T) {
		m := one(t, server(4097))
		if got := status(m); got.State != protocol.MCPFailed || !strings.HasPrefix(got.Error, "list its tools: it sent a list of more than 4096 entries") {
			t.Errorf("status %+v", got)
		}
	})
	t.Run("one page", func(t *testing.T) {
		m := manage(t, mcp.Options{Servers: []mcp.Server{{Name: "s", Command: "x"}}, Start: server(100_000), Wait: 20 * time.Second})
		m.Prepare(t.Context())
		if got := status(m); got.State != protocol.MCPFailed || !strings.Contains(got.Error, "more than 8388608 bytes") {
			t.Errorf("status %+v", got)
		}
	})
}

// TestOddTools offers tools that cannot be taken as they are.
func TestOddTools(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		long := strings.Repeat("l", 80)
		m := one(t, within(func(_ context.Context, in io.ReadCloser, out io.WriteCloser) {
			lines := bufio.NewScanner(in)
			for lines.Scan() {
				id := gjson.GetBytes(lines.Bytes(), "id").Int()
				switch gjson.GetBytes(lines.Bytes(), "method").Str {
				case "initialize":
					answer(out, id, `{"protocolVersion":"2025-06-18","capabilities":{"tools":{},"resources":{}},"serverInfo":{"name":"x","version":"1"}}`)
				case "tools/list":
					object := `"inputSchema":{"type":"object"}`
					answer(out, id, `{"tools":[null,{"name":"ok","title":"The title",`+object+`},{"name":"ok",`+object+`},{"name":"a.b",`+object+`},{"name":"a b",`+object+
						`},{"name":"read_resource",`+object+`},{"name":"",`+object+`},{"name":"`+long+`",`+object+`},{"name":"text","inputSchema":{"type":"string"}},`+
						`{"name":"wide","inputSchema":{"type":"object","x":"`+strings.Repeat("w", 20_000)+`"}}]}`)
				case "tools/call":
					answer(out, id, `{"content":[{"type":"text","text":"`+gjson.GetBytes(lines.Bytes(), "params.name").Str+`"}]}`)
				}
			}
		}))
		var names []string
		for _, tl := range m.Tools() {
			name := tl.Spec().Name
			if len(name) > 64 || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789_-") != "" {
				t.Errorf("the name %q is not for all providers", name)
			}
			names = append(names, name)
		}
		if len(names) != 6+2 {
			t.Errorf("the tools are %q", names)
		}
		if got := text(t, m, names[2]); got != "a b" {
			t.Errorf("%s calls %q", names[2], got)
		}
		if got := find(t, m, "mcp_s_ok").Spec().Description; got != "The title (of the MCP server s)" {
			t.Errorf("description %q", got)
		}
		want := `left out: "ok" is there twice, "text" has a schema whose type is not "object", "wide" has a schema of more than 16384 bytes`
		if got := status(m).Note; got != want {
			t.Errorf("note %q", got)
		}
	})
}
