package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/auth"
	"nexus.internal/bridge/client"
	"nexus.internal/bridge/homelock"
	"nexus.internal/cmd/internal/config"
)

// Variables by which a server is named that is reached by TLS, for which there are --server and --ca.
const (
	fromServer = "NEXUS_SERVER"
	fromCA     = "NEXUS_CA"
)

// Servers are the addresses of the server that is meant, with commas between them: --server, else $NEXUS_SERVER; "" where
// a server of this machine is meant, as by --port.
func (t *target) Servers() string {
	switch {
	case t.here:
		return ""
	case t.server != "":
		return t.server
	case t.portFrom == fromFlag:
		return ""
	default:
		return t.getenv(fromServer)
	}
}

// SetServers is --server.
func (t *target) SetServers(urls string) { t.server = urls }

// Here has the server of the home meant, whatever flags and environment say.
func (t *target) Here(port int) { t.here, t.Port = true, port }

// authorities is the file of --ca, else of $NEXUS_CA; "" for none.
func (t *target) authorities() string {
	if t.ca != "" {
		return t.ca
	}
	return t.getenv(fromCA)
}

// CheckServers is a usage error for addresses that are none, and for a port beside them. Connect checks them, too.
func (t *target) CheckServers() error {
	urls := t.Servers()
	if urls == "" {
		return nil
	}
	if t.server != "" && t.portFrom == fromFlag {
		return Usage("--server and --port exclude each other")
	}
	if _, err := client.CheckURLs(urls); err != nil {
		from := "--server"
		if t.server == "" {
			from = fromServer
		}
		return Usage("%s: %v", from, err)
	}
	return nil
}

// connectRemote is Connect for a server that was named by its addresses. None is started.
func (a *App) connectRemote(ctx context.Context, cfg *config.Config) (*client.Client, error) {
	urls := a.Servers()
	if err := a.CheckServers(); err != nil {
		return nil, err
	}
	home := string(cfg.Home)
	held, err := homelock.Find(home)
	if err != nil {
		return nil, err
	}
	port, plain := client.PlainPort(urls)
	own := plain && held.Runs && held.Port == port
	if own {
		a.Port = port
	}
	if a.apiKey == "" && cfg.APIKey == "" && !own {
		return nil, a.keyless(ctx, urls, home, held)
	}
	c, err := client.New(client.Options{URL: urls, CA: a.authorities(), Lookup: &auth.Lookup{Flag: a.apiKey, Env: cfg.APIKey, Home: home, Port: a.Port}})
	if errors.Is(err, auth.ErrNoKey) {
		return nil, keyIsGone(home, held)
	}
	if err != nil {
		return nil, err
	}
	// As on this machine, whether a server is there is known before anything is typed.
	_, err = c.Ready(ctx)
	if client.KindOf(err) == api.KindNoQuorum { // to ask again would take as long
		c.Close()
		return nil, err
	}
	if errors.Is(err, client.ErrNoServer) || errors.Is(err, client.ErrUntrusted) || errors.Is(err, client.ErrUnproved) {
		c.Close()
		return nil, a.serverEnded(err, "")
	}
	return c, nil
}

// keyless is the error where servers are named that are not known to be the home's own, and no key was given. Whether they are there is
// asked without a key.
func (a *App) keyless(ctx context.Context, urls, home string, held homelock.Server) error {
	c, err := client.New(client.Options{URL: urls, CA: a.authorities(), Retries: -1})
	if err != nil {
		return err
	}
	defer c.Close()
	limited, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	_, err = c.Ready(limited)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case limited.Err() != nil:
		return &noServerError{"what listens at " + urls + " does not answer"}
	case errors.Is(err, client.ErrNoServer), errors.Is(err, client.ErrUntrusted):
		return a.serverEnded(err, "")
	}
	if _, plain := client.PlainPort(urls); !plain {
		return fmt.Errorf("no API key for %s: give it by --api-key @FILE or NEXUS3_API_KEY, as the key files of a home are of its own server, at http://127.0.0.1:PORT", urls)
	}
	has := "has none"
	if held.Runs && held.Port > 0 {
		has = fmt.Sprintf("is on port %d", held.Port)
	}
	return &noServerError{fmt.Sprintf("the server at %s is not that of %s, which %s: name that server's home by --home, or its key by --api-key @FILE", urls, home, has)}
}

// oneServer is a usage error where several addresses are named, for what is about one server.
func (t *target) oneServer(verb string) error {
	if strings.Contains(t.Servers(), ",") {
		return Usage("%s is of one server: name it by --server, with one address", verb)
	}
	return nil
}
