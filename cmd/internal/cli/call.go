package cli

import (
	"context"
	"fmt"
	"io"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/pflag"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/client"
)

// call is the verb that calls any method as it is. A method that we do not know is the
// server's to refuse: it may be newer.
type call struct{ agent string }

const callHelp = "Call any method with parameters in JSON and print its result. PARAMS - reads them from stdin.\n\n" +
	`The page at /docs of the server, and "call rpc.discover", describe the methods and their parameters.`

func (v *call) flags(f *pflag.FlagSet) {
	f.StringVar(&v.agent, "agent", "", "the agent whose method is called")
}

func (v *call) check(_ *pflag.FlagSet, args []string) error {
	if len(args) == 2 && args[1] != "-" && jsontext.Value(args[1]).Kind() != '{' {
		return Usage("PARAMS must be a JSON object, or - to read one from stdin, not %q", args[1])
	}
	if m, ok := api.Find(args[0]); ok && m.Scope == api.Agent && v.agent == "" {
		return Usage("%s is a method of an agent: say which by --agent", args[0])
	}
	return nil
}

func (v *call) run(ctx context.Context, a *App, c *client.Client, args []string) error {
	params, err := readParams(a.Stdin, args[1:])
	if err != nil {
		return err
	}
	path := client.RootPath
	if v.agent != "" {
		path = client.AgentPath(v.agent)
	}
	var result jsontext.Value
	if err := c.Call(ctx, path, args[0], params, &result); err != nil {
		return err
	}
	return a.PrintValue(result)
}

// readParams reads PARAMS; none if there is none.
func readParams(stdin io.Reader, args []string) (any, error) {
	if len(args) == 0 {
		return nil, nil
	}
	text := jsontext.Value(args[0])
	if args[0] == "-" {
		read, err := io.ReadAll(io.LimitReader(stdin, maxStdin+1))
		if err != nil {
			return nil, fmt.Errorf("read PARAMS: %w", err)
		}
		text = read
	}
	if !text.IsValid() || text.Kind() != '{' {
		return nil, Usage("PARAMS are no JSON object")
	}
	return text, nil
}
