package cli

import (
	"context"
	"fmt"
	"strconv"

	"nexus.internal/bridge/client"
	"nexus.internal/bridge/homelock"
)

// Where App.Port comes from, as people write it.
const (
	fromFlag = "--port"
	fromEnv  = "NEXUS_PORT"
)

// portFlag is the value of --port.
type portFlag struct{ a *App }

func (portFlag) Type() string   { return "int" }
func (portFlag) String() string { return "" } // --help says the default in words

// Set implements pflag.Value.
func (f portFlag) Set(text string) error {
	port, err := strconv.Atoi(text)
	if err == nil {
		f.a.Port, f.a.portFrom, f.a.portErr = port, fromFlag, nil
	}
	return err
}

// readPort reads $NEXUS_PORT.
func (a *App) readPort() {
	text := a.getenv(fromEnv)
	if text == "" {
		return
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		a.portErr = Usage("%s must be a whole number, not %q", fromEnv, text)
		return
	}
	a.Port, a.portFrom = port, fromEnv
}

// CheckPort is a usage error for a port below lowest or above 65535: 0 is a free
// one for a server, and none to call.
func (a *App) CheckPort(lowest int) error {
	if a.portErr != nil {
		return a.portErr
	}
	if a.Port < lowest || a.Port > 65535 {
		return Usage("%s must be from %d to 65535, not %d", a.portFrom, lowest, a.Port)
	}
	return nil
}

// located is a server that was looked for.
type located struct {
	client.Finding
	home homelock.Server // what the home's lock says
}

// locate finds the server: at --port; else at $NEXUS_PORT; else the one that holds
// the home, at its port; else at config.DefaultPort. That is the rule of all clients
// (client.DefaultPort).
func (a *App) locate(ctx context.Context, home string) (found located, err error) {
	if err := a.CheckPort(1); err != nil {
		return found, err
	}
	if found.home, err = homelock.Find(home); err != nil {
		return found, err
	}
	if a.portFrom == "" && found.home.Runs && found.home.Port > 0 {
		a.Port = found.home.Port
	}
	found.Finding, err = a.find(ctx)
	return found, err
}

// elsewhere reports whether nothing listens on the port and the home has a server on
// another one, beside which none can be started.
func (l located) elsewhere(port int) bool {
	return l.Detection == client.NoServer && l.home.Runs && l.home.Port > 0 && l.home.Port != port
}

// find says what listens on the port.
func (a *App) find(ctx context.Context) (client.Finding, error) {
	found, err := client.Detect(ctx, a.Port)
	if err != nil {
		return found, fmt.Errorf("look for a server on port %d: %w", a.Port, err)
	}
	return found, nil
}
