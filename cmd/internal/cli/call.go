package cli

import (
	"context"
	"fmt"
	"io"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/client"
)

// callVerb calls any method as it is. A method that we do not know is the
// server's to refuse: it may be newer.
func (a *App) callVerb() *cobra.Command {
	var agent string
	cmd := a.verb("call METHOD [PARAMS] [FLAGS]", "", 0, mustRun, func(ctx context.Context, c *client.Client, args []string) error {
		params, err := a.params(args[1:])
		if err != nil {
			return err
		}
		path := client.RootPath
		if agent != "" {
			path = client.AgentPath(agent)
		}
		var result jsontext.Value
		if err := c.Call(ctx, path, args[0], params, &result); err != nil {
			return err
		}
		return a.printJSON(result)
	})
	cmd.Short = "Call any method with parameters in JSON and print its result"
	cmd.Long = "Call any method with parameters in JSON and print its result. PARAMS - reads them from stdin.\n\n" +
		`METHOD is one of the page at /docs of the server, or of "call rpc.discover", which says all about their parameters.`
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) < 1 || len(args) > 2 {
			return Usage("usage: %s", cmd.UseLine())
		}
		if len(args) == 2 && args[1] != "-" && jsontext.Value(args[1]).Kind() != '{' {
			return Usage("PARAMS must be a JSON object, or - to read one from stdin, not %q", args[1])
		}
		if m, ok := api.Find(args[0]); ok && m.Scope == api.Agent && agent == "" {
			return Usage("%s is a method of an agent: say which by --agent", args[0])
		}
		return nil
	}
	cmd.Flags().StringVar(&agent, "agent", "", "the agent whose method is called")
	return cmd
}

// params reads PARAMS; none if there is none.
func (a *App) params(args []string) (any, error) {
	if len(args) == 0 {
		return nil, nil
	}
	text := jsontext.Value(args[0])
	if args[0] == "-" {
		read, err := io.ReadAll(io.LimitReader(a.Stdin, maxStdin+1))
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
