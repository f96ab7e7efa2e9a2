package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/pflag"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/client"
	"nexus.internal/protocol"
)

// keysTable writes what list_keys says.
func keysTable(p *printer, list api.ListKeysResult, _ []string) error {
	if len(list.Keys) == 0 {
		return p.Printf("no keys\n")
	}
	rows := [][]string{{"KEY", "SCOPE", "AGENT", "GRANTS", "EXPIRES", "NAME"}}
	for _, key := range list.Keys {
		rows = append(rows, []string{
			key.KeyID, key.Scope, orDash(key.AgentID), grantsOf(key),
			momentOf(cmp.Or(protocol.Value(key.ExpiresAt), "never")), orDash(key.Name),
		})
	}
	return p.Listing(rows)
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

// createKey is the verb that makes a key, and prints it alone on stdout, so that it can go
// into a file unseen.
type createKey struct {
	agent, name string
	grants      bool
	expires     time.Duration
}

func (v *createKey) flags(f *pflag.FlagSet) {
	f.StringVar(&v.agent, "agent", "", "agent that the key is for (default: a key for reading)")
	Sets(f, "agent", "agent_id")
	f.BoolVar(&v.grants, "may-grant", false, "the key may widen the permissions of --agent, up to the owner's grant, and approve its calls")
	f.StringVar(&v.name, "name", "", "name for people")
	f.DurationVar(&v.expires, "expires", 0, "how long the key is valid, as in 24h (default: until it is revoked)")
}

func (v *createKey) check(f *pflag.FlagSet, _ []string) error {
	switch {
	case v.grants && v.agent == "":
		return Usage("--may-grant is for a key with --agent")
	case f.Changed("expires") && v.expires < time.Second:
		return Usage("--expires must be at least 1s, not %v", v.expires)
	}
	return nil
}

func (v *createKey) run(ctx context.Context, a *App, c *client.Client, _ []string) error {
	p := api.CreateKeyParams{Scope: "read"}
	if v.agent != "" {
		p.Scope, p.AgentID = "agent", &v.agent
	}
	if v.grants {
		p.MayGrant = &v.grants
	}
	if v.name != "" {
		p.Name = &v.name
	}
	if v.expires != 0 {
		p.ExpiresSeconds = new(uint64(v.expires / time.Second))
	}
	created, err := client.Do(ctx, c, "", api.CreateKey, p)
	if err == nil && !a.Structured() {
		a.note("key %s, shown only now", created.KeyID)
	}
	if err == nil && v.agent != "" {
		_, missing := findAgent(ctx, c, v.agent)
		if _, ok := errors.AsType[noAgentError](missing); ok && isUnreached(missing) {
			a.note("%v: the key is for that one, or for one of that name to come", missing)
		} else if ok {
			a.note("%v: the key is for one of that name to come", missing)
		}
	}
	return a.done(created, err, "%s\n", created.Key)
}

// rotateKey is the verb that replaces the full key, and names the file that has the new one.
type rotateKey struct{ grace time.Duration }

func (v *rotateKey) flags(f *pflag.FlagSet) {
	f.DurationVar(&v.grace, "grace", 0, "how long the old key stays valid, as in 10m")
}

func (v *rotateKey) check(*pflag.FlagSet, []string) error {
	if v.grace < 0 || v.grace%time.Second != 0 {
		return Usage("--grace must be whole seconds, not %v", v.grace)
	}
	return nil
}

func (v *rotateKey) run(ctx context.Context, a *App, c *client.Client, _ []string) error {
	rotated, err := client.Do(ctx, c, "", api.RotateKey, api.RotateKeyParams{GraceSeconds: new(uint64(v.grace / time.Second))})
	return a.done(rotated, err, "the new key %s is in %s\n", rotated.KeyID, rotated.KeyFile)
}

// revokeKey ends a key. It is an error if there is none, which the method does not take for one.
func revokeKey(ctx context.Context, a *App, c *client.Client, args []string) error {
	result, err := client.Do(ctx, c, "", api.RevokeKey, api.RevokeKeyParams{KeyID: args[0]})
	if err != nil {
		return err
	}
	return a.ended(result, result.Revoked, fmt.Errorf("no key %s", args[0]), "revoked %s\n", args[0])
}
