package mcp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"

	"nexus.internal/child/mcp"
	"nexus.internal/child/sandbox"
	"nexus.internal/child/tool"
	"nexus.internal/protocol"
)

// kindVariable makes the test binary a server of that kind.
const kindVariable = "MCP_TEST_SERVER"

func TestMain(m *testing.M) {
	if kind := os.Getenv(kindVariable); kind != "" {
		os.Exit(program(kind))
	}
	goleak.VerifyTestMain(m)
}

// program is a server over stdin and stdout. It returns its exit status.
func program(kind string) int {
	switch kind {
	case "good":
		if err := newServer(nil).Run(context.Background(), &sdk.StdioTransport{}); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return 0
	case "broken":
		fmt.Fprintln(os.Stderr, "cannot find my configuration; TOKEN is s3cret-value")
		return 3
	case "deaf": // never says anything and does not end with its stdin
		<-time.After(time.Hour) // select {} is taken for a deadlock, without C
		return 0
	default:
		fmt.Fprintln(os.Stderr, "no such kind")
		return 2
	}
}

// events are what a server in this process tells of.
type events struct{ started, cancelled chan struct{} }

type textInput struct {
	Text string `json:"text,omitempty"`
	N    int    `json:"n,omitempty"`
}

// newServer makes a server that does all that a good one does, and more.
func newServer(ev *events) *sdk.Server {
	s := sdk.NewServer(&sdk.Implementation{Name: "test", Version: "1"}, nil)
	add := func(name string, run func(context.Context, *sdk.CallToolRequest, textInput) (*sdk.CallToolResult, error)) {
		sdk.AddTool(s, &sdk.Tool{Name: name, Description: "does " + name},
			func(ctx context.Context, req *sdk.CallToolRequest, in textInput) (*sdk.CallToolResult, any, error) {
				r, err := run(ctx, req, in)
				return r, nil, err
			})
	}
	say := func(text string) *sdk.CallToolResult {
		return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: text}}}
	}
	add("echo", func(_ context.Context, _ *sdk.CallToolRequest, in textInput) (*sdk.CallToolResult, error) {
		return say(in.Text), nil
	})
	add("fail", func(context.Context, *sdk.CallToolRequest, textInput) (*sdk.CallToolResult, error) {
		r := say("that went wrong")
		r.IsError = true
		return r, nil
	})
	add("big", func(_ context.Context, _ *sdk.CallToolRequest, in textInput) (*sdk.CallToolResult, error) {
		return say(strings.Repeat("é", in.N/2)), nil
	})
	add("mixed", func(context.Context, *sdk.CallToolRequest, textInput) (*sdk.CallToolResult, error) {
		return &sdk.CallToolResult{Content: []sdk.Content{
			&sdk.TextContent{Text: "one"},
			&sdk.ImageContent{Data: []byte("PNG"), MIMEType: "image/png"},
			&sdk.EmbeddedResource{Resource: &sdk.ResourceContents{URI: "x://two", Text: "two"}},
			&sdk.EmbeddedResource{Resource: &sdk.ResourceContents{URI: "x://bin", Blob: []byte{0, 1}, MIMEType: "application/x"}},
			&sdk.AudioContent{Data: []byte("la"), MIMEType: "audio/wav"},
			&sdk.ResourceLink{URI: "x://three", Name: "three"},
		}}, nil
	})
	add("structured", func(context.Context, *sdk.CallToolRequest, textInput) (*sdk.CallToolResult, error) {
		return &sdk.CallToolResult{Content: []sdk.Content{}, StructuredContent: map[string]any{"b": 1, "a": "x"}}, nil
	})
	add("environment", func(context.Context, *sdk.CallToolRequest, textInput) (*sdk.CallToolResult, error) {
		dir, err := os.Getwd()
		return say(dir + "\n" + strings.Join(os.Environ(), "\n")), err
	})
	add("pid", func(context.Context, *sdk.CallToolRequest, textInput) (*sdk.CallToolResult, error) {
		return say(fmt.Sprint(os.Getpid())), nil
	})
	add("roots", func(ctx context.Context, req *sdk.CallToolRequest, _ textInput) (*sdk.CallToolResult, error) {
		roots, err := req.Session.ListRoots(ctx, nil) //nolint:staticcheck // of our version
		if err != nil {
			return nil, err
		}
		_, sampling := req.Session.CreateMessage(ctx, &sdk.CreateMessageParams{}) //nolint:staticcheck // of our version
		_, asked := req.Session.Elicit(ctx, &sdk.ElicitParams{Message: "who are you?"})
		return say(fmt.Sprintf("%s %t %t", roots.Roots[0].URI, sampling != nil, asked != nil)), nil
	})
	add("grow", func(context.Context, *sdk.CallToolRequest, textInput) (*sdk.CallToolResult, error) {
		sdk.AddTool(s, &sdk.Tool{Name: "grown"}, func(context.Context, *sdk.CallToolRequest, textInput) (*sdk.CallToolResult, any, error) {
			return say("I am new"), nil, nil
		})
		return say("grown"), nil
	})
	add("crash", func(context.Context, *sdk.CallToolRequest, textInput) (*sdk.CallToolResult, error) {
		fmt.Fprintln(os.Stderr, "something is very wrong")
		os.Exit(3)
		return nil, nil
	})
	add("hang", func(ctx context.Context, _ *sdk.CallToolRequest, _ textInput) (*sdk.CallToolResult, error) {
		if ev != nil {
			ev.started <- struct{}{}
		}
		<-ctx.Done()
		if ev != nil {
			ev.cancelled <- struct{}{}
		}
		return nil, ctx.Err()
	})
	s.AddResource(&sdk.Resource{URI: "note://one", Name: "one", MIMEType: "text/plain", Description: "a note"},
		func(context.Context, *sdk.ReadResourceRequest) (*sdk.ReadResourceResult, error) {
			return &sdk.ReadResourceResult{Contents: []*sdk.ResourceContents{{URI: "note://one", Text: "the note's text"}}}, nil
		})
	s.AddResourceTemplate(&sdk.ResourceTemplate{URITemplate: "note://{name}", Name: "any"},
		func(_ context.Context, req *sdk.ReadResourceRequest) (*sdk.ReadResourceResult, error) {
			return nil, sdk.ResourceNotFoundError(req.Params.URI)
		})
	s.AddPrompt(&sdk.Prompt{Name: "review", Description: "reviews\na file", Arguments: []*sdk.PromptArgument{{Name: "file", Required: true}}},
		func(_ context.Context, req *sdk.GetPromptRequest) (*sdk.GetPromptResult, error) {
			return &sdk.GetPromptResult{Messages: []*sdk.PromptMessage{
				{Role: "user", Content: &sdk.TextContent{Text: "review " + req.Params.Arguments["file"]}},
			}}, nil
		})
	return s
}

// sandboxed starts programs for real.
func sandboxed() mcp.Start {
	return mcp.Sandboxed(func() (sandbox.Rules, error) { return sandbox.Rules{}, nil })
}

// self is a server of that kind as a program.
func self(t *testing.T, name, kind string) mcp.Server {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return mcp.Server{Name: name, Command: exe, Env: map[string]string{kindVariable: kind}}
}

// manage makes a manager that is closed, and must leave nothing, at the end.
func manage(t *testing.T, o mcp.Options) *mcp.Manager {
	t.Helper()
	m := mcp.New(o)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := m.Close(ctx); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return m
}

// find is the tool of that name.
func find(t *testing.T, m *mcp.Manager, name string) tool.Tool {
	t.Helper()
	var names []string
	for _, tl := range m.Tools() {
		if tl.Spec().Name == name {
			return tl
		}
		names = append(names, tl.Spec().Name)
	}
	t.Fatalf("no tool %s among %v; %+v", name, names, m.Status())
	return nil
}

// call calls a tool with an input that is made of pairs of names and values.
func call(t *testing.T, m *mcp.Manager, name string, pairs ...any) (tool.Result, error) {
	t.Helper()
	return find(t, m, name).Run(t.Context(), tool.Call{Input: input(t, pairs...)})
}

func input(t *testing.T, pairs ...any) jsontext.Value {
	t.Helper()
	members := map[string]any{}
	for i := 0; i < len(pairs); i += 2 {
		members[pairs[i].(string)] = pairs[i+1]
	}
	data, err := json.Marshal(members)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// text is the text of a call that must go well.
func text(t *testing.T, m *mcp.Manager, name string, pairs ...any) string {
	t.Helper()
	r, err := call(t, m, name, pairs...)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return r.Text
}

// fails is the error of a call that must fail.
func fails(t *testing.T, m *mcp.Manager, name string, want ...string) {
	t.Helper()
	r, err := call(t, m, name)
	if err == nil {
		t.Fatalf("%s gave %.200q, want an error", name, r.Text)
	}
	for _, w := range want {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%s: error %q does not say %q", name, err, w)
		}
	}
}

// status is what is told of the only server.
func status(m *mcp.Manager) protocol.MCPServer { return m.Status()[0] }

// inside is a program that lives in this process: serve has its stdin and
// stdout, and is to return when stdin ends.
type inside struct {
	stdin  net.Conn
	stdout *io.PipeReader
	done   chan struct{}
	kill   func()
}

func (p *inside) Stdin() mcp.Input  { return p.stdin }
func (p *inside) Stdout() io.Reader { return p.stdout }
func (p *inside) Kill()             { p.kill() }
func (p *inside) Close()            { p.kill(); <-p.done; p.stdin.Close(); p.stdout.Close() }

func (p *inside) Wait() error {
	<-p.done
	return errors.New("exit status 7")
}

// within starts serve as if it were a program.
func within(serve func(ctx context.Context, in io.ReadCloser, out io.WriteCloser)) mcp.Start {
	return func(ctx context.Context, _ mcp.Spec) (mcp.Process, error) {
		ours, theirs := net.Pipe()
		r, w := io.Pipe()
		ctx, cancel := context.WithCancel(ctx)
		p := &inside{stdin: ours, stdout: r, done: make(chan struct{})}
		var once sync.Once
		p.kill = func() {
			once.Do(func() {
				cancel()
				theirs.Close()
				w.Close()
			})
		}
		go func() {
			defer close(p.done)
			defer p.kill()
			serve(ctx, theirs, w)
		}()
		return p, nil
	}
}

// serving is a good server within this process.
func serving(ev *events) mcp.Start {
	return within(func(ctx context.Context, in io.ReadCloser, out io.WriteCloser) {
		newServer(ev).Run(ctx, &sdk.IOTransport{Reader: in, Writer: out})
	})
}

// environment is an [mcp.Environment]; what is nil in it is as in none.
type environment struct {
	permit func(mcp.Server) error
	cwd    *string
}

func (e environment) Permit(s mcp.Server) error {
	if e.permit == nil {
		return nil
	}
	return e.permit(s)
}

func (e environment) Cwd() string {
	if e.cwd == nil {
		return "/"
	}
	return *e.cwd
}

// images keeps the pictures of results.
type images struct{}

func (images) Put(data []byte, mime, name string) (protocol.Image, error) {
	return protocol.Image{Mime: mime, Size: int64(len(data)), Name: name}, nil
}
