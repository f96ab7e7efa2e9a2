package cli

import (
	"context"
	"fmt"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/auth"
	"nexus.internal/bridge/client"
	"nexus.internal/bridge/homelock"
	"nexus.internal/cmd/internal/config"
)

// Detect reports whether a nexus server listens on the port.
func (a *App) Detect(ctx context.Context, port int) bool {
	found, err := client.Detect(ctx, port)
	return err == nil && found.Detection == client.NexusServer
}

// whether a verb starts a server where none runs.
const (
	mustRun  = false
	mayStart = true
)

// connect finds the server, or starts one if start is set and none runs. Only
// then is a key looked for, so that none goes to a stranger on the port.
func (a *App) connect(ctx context.Context, start bool) (*client.Client, error) {
	cfg, err := a.Config()
	if err != nil {
		return nil, err
	}
	found, err := a.locate(ctx, string(cfg.Home))
	if err != nil {
		return nil, err
	}
	if found.Detection == client.NoServer && start && !a.noStart && !found.elsewhere(a.Port) {
		if found, err = a.start(ctx, cfg, found.home); err != nil {
			return nil, err
		}
	}
	if found.Detection != client.NexusServer {
		return nil, &noServerError{describe(found, a.Port, a.portFrom, string(cfg.Home))}
	}
	// In a copy of a home lies the key file of another home's server, which may be
	// the one that listens there.
	if a.apiKey == "" && cfg.APIKey == "" && (!found.home.Runs || found.home.Port != a.Port) {
		return nil, &noServerError{fmt.Sprintf("the server on port %d is not that of %s: name its home by --home, or its key by --api-key @FILE", a.Port, string(cfg.Home))}
	}
	return client.New(client.Options{
		URL:    found.URL,
		Sign:   found.Health.SignaturesRequired,
		Lookup: &auth.Lookup{Flag: a.apiKey, Env: cfg.APIKey, Home: string(cfg.Home), Port: a.Port},
	})
}

// start starts a server of the home, whose lock says last.
func (a *App) start(ctx context.Context, cfg *config.Config, last homelock.Server) (located, error) {
	if a.apiKey != "" || cfg.APIKey != "" {
		given := "--api-key"
		if a.apiKey == "" {
			given = "NEXUS3_API_KEY"
		}
		return located{}, &noServerError{fmt.Sprintf("no server on port %d, and none is started, as %s gives a key and a new server makes its own", a.Port, given)}
	}
	switch {
	case last.Copied:
		a.note("%s is a copy of another home: its last server is not known", string(cfg.Home))
	case last.PID > 0 && !last.Runs:
		a.note("the last server of %s (process %d) did not end by itself", string(cfg.Home), last.PID)
	}
	started, failed := startServer(cfg, a.Port, a.Environ)
	if failed == nil {
		a.note("started a server (process %d, port %d, log %s)", started.pid, a.Port, started.log)
	}
	// Somebody else may start one at the same time: one of us gets the home, and both
	// may use its server.
	found, err := a.locate(ctx, string(cfg.Home))
	if err == nil && found.Detection != client.NexusServer {
		err = failed
	}
	return found, err
}

// note tells people something on stderr that is no part of the answer.
func (a *App) note(format string, args ...any) {
	fmt.Fprintf(a.errs, "%s: %s\n", a.Name, fmt.Sprintf(format, foreign(args)...))
}

func describe(found located, port int, from, home string) string {
	what := fmt.Sprintf("what listens on port %d", port)
	if found.home.Runs && found.home.Port == port {
		what = fmt.Sprintf("the server of %s (process %d, port %d)", home, found.home.PID, port)
	}
	switch found.Detection {
	case client.OtherService:
		return what + " is no nexus server"
	case client.Timeout:
		return what + " does not answer"
	default:
		return fmt.Sprintf("no server on port %d%s", port, advice(found, port, from, home))
	}
}

// advice is how to get a server where none is, as the end of a sentence about that.
func advice(found located, port int, from, home string) string {
	switch {
	case found.elsewhere(port):
		return fmt.Sprintf(" (%s), and the server of %s is on port %d: leave %[1]s out, or name that port", from, home, found.home.Port)
	case found.Detection == client.NoServer:
		return ": start one with nexus serve"
	default:
		return ""
	}
}

// detect says what listens on the port, on one line that begins with one word
// for it. Anything but a nexus server is exit status 3, and all is said by then.
func (a *App) detect(ctx context.Context) error {
	home, err := a.Home()
	if err != nil {
		return err
	}
	found, err := a.locate(ctx, home)
	if err != nil {
		return err
	}
	word := snake(found.Detection)
	switch {
	case a.json:
		err = a.printJSON(struct {
			Port   int         `json:"port"`
			Found  string      `json:"found"` // nexus_server, no_server, other_service, timeout
			Health *api.Health `json:"health"`
		}{a.Port, word, healthOf(found.Finding)})
	case found.Detection == client.NexusServer:
		err = a.printf("%s %s at %s, %s\n", word, found.Health.Version, found.URL, found.Health.Status)
	default:
		err = a.printf("%s on port %d%s\n", word, a.Port, advice(found, a.Port, a.portFrom, home))
	}
	if err == nil && found.Detection != client.NexusServer {
		err = &noServerError{}
	}
	return err
}

func healthOf(found client.Finding) *api.Health {
	if found.Detection != client.NexusServer {
		return nil
	}
	return &found.Health
}

func snake(found client.Detection) string {
	switch found {
	case client.NexusServer:
		return "nexus_server"
	case client.OtherService:
		return "other_service"
	case client.Timeout:
		return "timeout"
	default:
		return "no_server"
	}
}
