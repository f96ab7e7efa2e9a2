package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"nexus.internal/bridge/auth"
	"nexus.internal/bridge/client"
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
	if a.apiKey == "" && cfg.APIKey == "" {
		return nil, fmt.Errorf("no API key for %s: give it by --api-key @FILE or NEXUS3_API_KEY, as the key files of a home are of its own server", urls)
	}
	c, err := client.New(client.Options{
		URL: urls, CA: a.authorities(), Lookup: &auth.Lookup{Flag: a.apiKey, Env: cfg.APIKey, Home: string(cfg.Home), Port: a.Port},
	})
	if err != nil {
		return nil, err
	}
	// As on this machine, whether a server is there is known before anything is typed.
	if _, err := c.Ready(ctx); errors.Is(err, client.ErrNoServer) || errors.Is(err, client.ErrUntrusted) || errors.Is(err, client.ErrUnproved) {
		c.Close()
		return nil, a.serverEnded(err, "")
	}
	return c, nil
}

// oneServer is a usage error where several addresses are named, for what is about one server.
func (t *target) oneServer(verb string) error {
	if strings.Contains(t.Servers(), ",") {
		return Usage("%s is of one server: name it by --server, with one address", verb)
	}
	return nil
}
