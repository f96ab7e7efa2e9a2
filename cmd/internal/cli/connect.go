package cli

import (
	"context"
	"fmt"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/auth"
	"nexus.internal/bridge/client"
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
	if err := a.CheckPort(1); err != nil {
		return nil, err
	}
	cfg, err := a.Config()
	if err != nil {
		return nil, err
	}
	found, err := a.find(ctx)
	if err != nil {
		return nil, err
	}
	if found.Detection == client.NoServer && start {
		// Somebody else may start one at the same time: one of us gets the port,
		// and both may use it.
		failed := startServer(cfg, a.Port)
		if found, err = a.find(ctx); err != nil {
			return nil, err
		}
		if failed != nil && found.Detection != client.NexusServer {
			return nil, failed
		}
	}
	if found.Detection != client.NexusServer {
		return nil, &noServerError{describe(found.Detection, a.Port)}
	}
	return client.New(client.Options{
		URL:    found.URL,
		Lookup: &auth.Lookup{Flag: a.apiKey, Env: cfg.APIKey, Home: cfg.Home, Port: a.Port},
	})
}

// find says what listens on the port.
func (a *App) find(ctx context.Context) (client.Finding, error) {
	found, err := client.Detect(ctx, a.Port)
	if err != nil {
		return found, fmt.Errorf("look for a server on port %d: %w", a.Port, err)
	}
	return found, nil
}

func describe(found client.Detection, port int) string {
	switch found {
	case client.OtherService:
		return fmt.Sprintf("what listens on port %d is no nexus server", port)
	case client.Timeout:
		return fmt.Sprintf("what listens on port %d does not answer", port)
	default:
		return fmt.Sprintf("no server on port %d: start one with nexus serve", port)
	}
}

// detect says what listens on the port, on one line that begins with one word
// for it. Anything but a nexus server is exit status 3.
func (a *App) detect(ctx context.Context) error {
	if err := a.CheckPort(1); err != nil {
		return err
	}
	found, err := a.find(ctx)
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
		}{a.Port, word, healthOf(found)})
	case found.Detection == client.NexusServer:
		err = a.printf("%s %s at %s, %s\n", word, found.Health.Version, found.URL, found.Health.Status)
	default:
		err = a.printf("%s\n", word)
	}
	if err == nil && found.Detection != client.NexusServer {
		err = &noServerError{describe(found.Detection, a.Port)}
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

func or(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}
