package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/client"
	"nexus.internal/protocol"
)

func (a *App) keysVerb() *cobra.Command {
	cmd := a.verb("keys", "list_keys", 0, mustRun, a.keys)
	revoke := a.verb("revoke KEY_ID", "revoke_key", 1, mustRun, a.revokeKey)
	cmd.Args = VerbsOnly
	cmd.AddCommand(a.createKeyVerb(), revoke)
	return cmd
}

func (a *App) keys(ctx context.Context, c *client.Client, _ []string) error {
	list, err := client.Do(ctx, c, "", api.ListKeys, api.None{})
	switch {
	case err != nil:
		return err
	case a.json:
		return a.printJSON(list)
	case len(list.Keys) == 0:
		return a.printf("no keys\n")
	}
	rows := [][]string{{"KEY", "SCOPE", "AGENT", "GRANTS", "EXPIRES", "NAME"}}
	for _, key := range list.Keys {
		rows = append(rows, []string{
			key.KeyID, key.Scope, cmp.Or(protocol.Value(key.AgentID), "-"), grantsOf(key),
			cmp.Or(protocol.Value(key.ExpiresAt), "never"), cmp.Or(protocol.Value(key.Name), "-"),
		})
	}
	return a.table(rows)
}

// grantsOf says whether a key may widen what its agent may do; - where that is no
// question.
func grantsOf(key api.KeyInfo) string {
	switch {
	case key.AgentID == nil:
		return "-"
	case key.MayGrant:
		return "yes"
	default:
		return "no"
	}
}

// createKeyVerb prints the key alone on stdout, so that it can go into a file
// unseen.
func (a *App) createKeyVerb() *cobra.Command {
	var agent, name string
	var grants bool
	var expires time.Duration
	cmd := a.verb("create [FLAGS]", "create_key", 0, mustRun, func(ctx context.Context, c *client.Client, _ []string) error {
		p := api.CreateKeyParams{Scope: "read"}
		if agent != "" {
			p.Scope, p.AgentID = "agent", &agent
		}
		if grants {
			p.MayGrant = &grants
		}
		if name != "" {
			p.Name = &name
		}
		if expires != 0 {
			p.ExpiresSeconds = new(uint64(expires / time.Second))
		}
		created, err := client.Do(ctx, c, "", api.CreateKey, p)
		if err == nil && !a.json {
			a.note("key %s, shown only now", created.KeyID)
		}
		if err == nil && agent != "" {
			_, missing := findAgent(ctx, c, agent)
			if _, ok := errors.AsType[noAgentError](missing); ok {
				a.note("%v: the key is for one of that name to come", missing)
			}
		}
		return a.done(created, err, "%s\n", created.Key)
	})
	cmd.Flags().StringVar(&agent, "agent", "", "agent that the key is for (default: a key for reading)")
	cmd.Flags().BoolVar(&grants, "may-grant", false, "the key may widen what --agent may do, up to what its owner granted, and approve its calls")
	cmd.Flags().StringVar(&name, "name", "", "what people call it")
	cmd.Flags().DurationVar(&expires, "expires", 0, "how long it is good, as in 24h (default: until it is revoked)")
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) error {
		switch changed := cmd.Flags().Changed; {
		case changed("agent") && agent == "":
			return Usage("--agent must not be empty") // it would be a key for reading everything
		case grants && agent == "":
			return Usage("--may-grant is for a key with --agent")
		case changed("expires") && expires < time.Second:
			return Usage("--expires must be at least 1s, not %v", expires)
		}
		return nil
	}
	return cmd
}

func (a *App) revokeKey(ctx context.Context, c *client.Client, args []string) error {
	revoked, err := client.Do(ctx, c, "", api.RevokeKey, api.RevokeKeyParams{KeyID: args[0]})
	if err == nil && !revoked.Revoked {
		if a.json {
			err = a.printJSON(revoked)
		}
		return errors.Join(err, fmt.Errorf("no key %s", args[0]))
	}
	return a.done(revoked, err, "revoked %s\n", args[0])
}
