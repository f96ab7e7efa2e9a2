package cli

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/auth"
	"nexus.internal/bridge/client"
	"nexus.internal/bridge/homelock"
	"nexus.internal/cmd/internal/config"
	"nexus.internal/protocol/ratelimit"
	"nexus.internal/protocol/safefile"
	"nexus.internal/protocol/shellword"
)

// Where target.Port comes from, as people write it.
const (
	fromFlag = "--port"
	fromEnv  = "NEXUS_PORT"
)

// target says which server is meant, by the flags and the environment.
type target struct {
	// Port is --port, else $NEXUS_PORT, else config.DefaultPort; a verb that calls
	// a server makes it that server's (locate).
	Port int

	environ  []string // KEY=VALUE
	home     string   // --home; "" means as the environment says
	apiKey   string   // --api-key
	server   string   // --server
	ca       string   // --ca
	here     bool     // the server of the home is meant, whatever else says
	noStart  bool     // --no-start
	member   bool     // the home is of a machine of a cluster
	portFrom string   // where Port comes from: --port, NEXUS_PORT or ""
	byURL    bool     // by --connect, which is as --port
	portErr  error    // what is wrong with $NEXUS_PORT
}

// newTarget is the server that the environment means.
func newTarget(environ []string) *target {
	t := &target{Port: config.DefaultPort, environ: environ}
	text := t.getenv(fromEnv)
	if text == "" {
		return t
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		t.portErr = Usage("%s must be a whole number, not %q", fromEnv, text)
		return t
	}
	t.Port, t.portFrom = port, fromEnv
	return t
}

// getenv is a variable of the environment.
func (t *target) getenv(name string) string { return Variable(t.environ, name) }

// Colourless reports whether the environment asks for no colours: NO_COLOR has any text (no-color.org).
func Colourless(environ []string) bool { return Variable(environ, "NO_COLOR") != "" }

// Variable is a variable of an environment of KEY=VALUE, "" if it is not there. Of two of a name, the last counts.
func Variable(environ []string, name string) (value string) {
	for _, variable := range environ {
		if text, ok := strings.CutPrefix(variable, name+"="); ok {
			value = text
		}
	}
	return value
}

// Found is the environment in which other command lines find the server that Connect has found, and
// its home.
func (a *App) Found() (environ []string, home string, err error) {
	if environ, err = a.withHome(); err != nil {
		return nil, "", err
	}
	if home, err = a.Home(); err != nil {
		return nil, "", err
	}
	if servers := a.Servers(); servers != "" {
		environ = append(environ[:len(environ):len(environ)], fromServer+"="+servers, fromCA+"="+a.authorities())
	} else if a.portFrom != "" { // else the home says where it listens
		environ = append(environ[:len(environ):len(environ)], fmt.Sprintf("%s=%d", fromEnv, a.Port), fromServer+"=")
	}
	if a.apiKey != "" { // the environment has no @FILE
		key, _, err := auth.Discover(auth.Lookup{Flag: a.apiKey})
		if err != nil {
			return nil, "", fmt.Errorf("find the API key: %w", err)
		}
		environ = append(environ[:len(environ):len(environ)], "NEXUS3_API_KEY="+key.Reveal())
	}
	return environ, home, nil
}

// withHome is the environment with --home in it.
func (t *target) withHome() ([]string, error) {
	if t.home == "" {
		return t.environ, nil
	}
	home, err := filepath.Abs(t.home)
	if err != nil {
		return nil, fmt.Errorf("resolve --home: %w", err)
	}
	return append(append([]string{}, t.environ...), "NEXUS_HOME="+home), nil // the last one counts
}

// Home is the home by the environment and --home.
func (t *target) Home() (string, error) {
	environ, err := t.withHome()
	if err != nil {
		return "", err
	}
	return safefile.HomeOf(environ)
}

// Config is what the environment and --home say. No file is read: whether
// config.json is right is its server's business.
func (t *target) Config() (*config.Config, error) {
	environ, err := t.withHome()
	if err != nil {
		return nil, err
	}
	return config.Environment(environ)
}

// LoadConfig is Config with config.json of the home, or the file at path in its place
// unless that is "". No project's file is read: a server must not depend on where it
// was started.
func (t *target) LoadConfig(path string) (*config.Config, error) {
	environ, err := t.withHome()
	if err != nil {
		return nil, err
	}
	if path != "" {
		return config.LoadAs(path, environ, "/")
	}
	return config.Load(environ, "/")
}

// Detect reports whether a nexus server listens on the port.
func Detect(ctx context.Context, port int) bool {
	found, err := client.Detect(ctx, port)
	return err == nil && found.Detection == client.NexusServer
}

// located is a server that was looked for.
type located struct {
	client.Finding
	home homelock.Server // what the home's lock says
}

// locate finds the server: at --port; else at $NEXUS_PORT; else the one that holds
// the home, at its port; else at config.DefaultPort. That is the rule of all clients
// (client.DefaultPort). A server that is ending or starting meanwhile is looked at again: for
// two seconds the home's lock may be that of a process which does not answer any more.
func (t *target) locate(ctx context.Context, home string) (found located, err error) {
	if err := t.CheckPort(1); err != nil {
		return found, err
	}
	port := t.Port
	for range 2 * time.Second / pause {
		t.Port = port
		if found, err = t.look(ctx, home); err != nil || found.Detection == client.Timeout {
			return found, err
		}
		if found.Detection == client.NexusServer && !found.holds(t.Port) { // it may hold the home only since then
			found.home, err = homelock.Find(home)
			return found, err
		}
		if found.Detection == client.NexusServer || !found.holds(t.Port) {
			return found, nil
		}
		if err := ratelimit.Sleep(ctx, pause); err != nil {
			return found, err
		}
	}
	return found, nil
}

// pause is how long a server that is ending is left alone between two looks at it.
const pause = 50 * time.Millisecond

// look is locate at this moment.
func (t *target) look(ctx context.Context, home string) (found located, err error) {
	cluster, _ := config.Home(home).Machine()
	t.member = cluster != ""
	if found.home, err = homelock.Find(home); err != nil {
		return found, err
	}
	if t.portFrom == "" && found.home.Runs && found.home.Port > 0 {
		t.Port = found.home.Port
	}
	if found.Finding, err = client.Detect(ctx, t.Port); err != nil {
		return found, fmt.Errorf("look for a server on port %d: %w", t.Port, err)
	}
	return found, nil
}

// holds reports whether the server that holds the home is the one of that port.
func (l located) holds(port int) bool { return l.home.Runs && l.home.Port == port }

// elsewhere reports whether nothing listens on the port and the home has a server on
// another one, beside which none can be started.
func (l located) elsewhere(port int) bool {
	return l.Detection == client.NoServer && l.home.Runs && l.home.Port > 0 && l.home.Port != port
}

// StartFlag gives a verb that starts a server where none runs the flag not to (Connect).
func (a *App) StartFlag(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&a.noStart, "no-start", false, "start no server if none runs")
}

// Starts reports whether Connect, asked to, may start a server where none runs.
func (a *App) Starts() bool {
	cfg, err := a.Config()
	return err == nil && a.Servers() == "" && !a.noStart && a.apiKey == "" && cfg.APIKey == "" && !a.member
}

// Reach is Connect for whoever heeds no signals: one that comes while a server is started would leave a
// server that nobody was told of.
func (a *App) Reach(ctx context.Context, start bool) (*client.Client, error) {
	if !start || a.Slash { // a talk heeds them
		return a.Connect(ctx, start)
	}
	ctx, stop := endingLater(ctx)
	defer stop()
	return a.Connect(ctx, start)
}

// Connect finds the server, or starts one if start is set and none runs. Only
// then is a key looked for, so that none goes to a stranger on the port. The caller must close
// the client. One goroutine at a time may call it.
func (a *App) Connect(ctx context.Context, start bool) (*client.Client, error) {
	cfg, err := a.Config()
	if err != nil {
		return nil, err
	}
	if a.Servers() != "" {
		return a.connectRemote(ctx, cfg)
	}
	home := string(cfg.Home)
	found, err := a.locate(ctx, home)
	if err != nil {
		return nil, err
	}
	if start && !a.noStart && (found.Detection == client.NoServer && !found.elsewhere(a.Port) || a.displaced(found, cfg)) {
		if found, err = a.start(ctx, cfg, found); err != nil {
			return nil, err
		}
	}
	if found.Detection != client.NexusServer {
		return nil, &noServerError{a.describe(found, home)}
	}
	// In a copy of a home lies the key file of another home's server, which may be
	// the one that listens there.
	if a.apiKey == "" && cfg.APIKey == "" && !found.holds(a.Port) {
		return nil, &noServerError{a.describeStranger(found, home)}
	}
	c, err := client.New(client.Options{
		URL:    found.URL,
		Moves:  a.portFrom == "" && found.holds(a.Port),
		Sign:   found.Health.SignaturesRequired,
		Lookup: &auth.Lookup{Flag: a.apiKey, Env: cfg.APIKey, Home: home, Port: a.Port},
	})
	if errors.Is(err, auth.ErrNoKey) {
		return nil, keyIsGone(home, found.home)
	}
	return c, err
}

// keyIsGone is the error where the home's server runs and its key file, which it made as it started, is not there.
func keyIsGone(home string, server homelock.Server) error {
	return fmt.Errorf("the server of %s (process %d, port %d) runs, and its key file %s is gone: %s, and start it again, which makes another one",
		home, server.PID, server.Port, auth.KeyPath(home, server.Port), kill(server.PID))
}

// displaced reports whether something else listens where a server of the home would: it is
// started on another port then, unless somebody named that one, or gave a key of that server.
func (a *App) displaced(found located, cfg *config.Config) bool {
	stranger := found.Detection == client.NexusServer || found.Detection == client.OtherService
	return stranger && !found.home.Runs && a.portFrom == "" && a.apiKey == "" && cfg.APIKey == ""
}

// start starts a server of the home, on the port, or on a free one after it.
func (a *App) start(ctx context.Context, cfg *config.Config, before located) (located, error) {
	if a.apiKey != "" || cfg.APIKey != "" {
		given := "--api-key"
		if a.apiKey == "" {
			given = "NEXUS3_API_KEY"
		}
		return located{}, &noServerError{fmt.Sprintf("no server on port %d, and none is started, as %s gives a key and a new server makes its own", a.Port, given)}
	}
	home := string(cfg.Home)
	if cluster, machine := cfg.Home.Machine(); cluster != "" {
		return located{}, &noServerError{fmt.Sprintf("no server on port %d, and none is started: %s is the home of the machine %s of the cluster %s, and the others may have its agents by now: start it again with %s, or ask another machine by --server",
			a.Port, home, machine, cluster, a.serve())}
	}
	switch last := before.home; {
	case last.Copied:
		a.note("%s is a copy of another home: its last server is not known", home)
	case last.PID > 0 && !last.Runs:
		a.note("the last server of %s (process %d) did not end by itself", home, last.PID)
	}
	found := before
	for range maxStarts {
		if found.Detection != client.NoServer {
			port, err := freePortAfter(a.Port)
			if err != nil {
				return located{}, &noServerError{err.Error() + ": name a free one by --port"}
			}
			a.Port = port
		}
		started, failed := startServer(ctx, cfg, a.Port, a.Environ, a.ServeFlags)
		if failed == nil {
			a.Started = started.pid
			a.note("started a server (process %d, port %d, log %s)", started.pid, a.Port, started.log)
			ctx = context.WithoutCancel(ctx) // the caller has to know it, to end it
		}
		// Somebody else may start one at the same time. One of this home: one of us gets the home, and both
		// may use its server. One of another home: it may have got the port.
		var err error
		if found, err = a.locate(ctx, home); err == nil && found.Detection != client.NexusServer {
			err = failed
		}
		if found.Detection == client.NoServer && failed != nil && strings.Contains(failed.Error(), PortTaken(a.Port)) {
			continue // whoever had it has ended since
		}
		if err != nil || a.Started > 0 || !a.displaced(found, cfg) {
			return found, err
		}
	}
	return found, nil
}

// PortTaken is how the error of a server ends whose port another program has.
func PortTaken(port int) string {
	return fmt.Sprintf("port %d; choose another port, or 0 for a free one", port)
}

// maxStarts is how many ports are tried, one after the other, while servers of other homes get each before ours.
const maxStarts = 20

// describe says what was found where a nexus server was wanted.
func (t *target) describe(found located, home string) string {
	what := fmt.Sprintf("what listens on port %d", t.Port)
	if found.holds(t.Port) {
		what = fmt.Sprintf("the server of %s (process %d, port %d)", home, found.home.PID, t.Port)
	}
	switch found.Detection {
	case client.OtherService:
		return what + " is no nexus server: name the port of one by --port" + t.orLeaveOut()
	case client.Timeout:
		if found.holds(t.Port) {
			return fmt.Sprintf("%s does not answer: %s, and start it again", what, kill(found.home.PID))
		}
		return what + " does not answer"
	default:
		return fmt.Sprintf("no server on port %d%s", t.Port, t.advice(found, home))
	}
}

// describeStranger is what there is to say of a server on the port that does not hold the home.
func (t *target) describeStranger(found located, home string) string {
	said := fmt.Sprintf("the server on port %d is not that of %s", t.Port, home)
	switch {
	case !found.home.Runs:
		said += ", which has none: start one on a free port with " + t.serveOn("0") + "; or"
	case found.home.Port > 0:
		said += fmt.Sprintf(", which is on port %d: name that port; or", found.home.Port)
	default:
		said += ":"
	}
	return said + " name that server's home by --home, or its key by --api-key @FILE" + t.orLeaveOut()
}

// advice is how to get a server where none is, as the end of a sentence about that.
func (t *target) advice(found located, home string) string {
	switch {
	case found.elsewhere(t.Port):
		return fmt.Sprintf(" (%s), and the server of %s is on port %d: leave %[1]s out, or name that port", t.portName(), home, found.home.Port)
	case found.Detection == client.NoServer:
		return ": start one with " + t.serve()
	default:
		return ""
	}
}

// orLeaveOut is what else helps where the port was named, as the end of a sentence.
func (t *target) orLeaveOut() string {
	if t.portFrom == "" {
		return ""
	}
	return fmt.Sprintf(", or leave out %s, which names port %d", t.portName(), t.Port)
}

// serve is the command line that starts a server where this command looks for one.
func (t *target) serve() string {
	if t.portFrom == fromFlag {
		return t.serveOn(strconv.Itoa(t.Port))
	}
	return t.serveOn("")
}

// serveOn is serve with another port; "" for none.
func (t *target) serveOn(port string) string {
	line := "nexus serve"
	if port != "" {
		line += " " + port
	}
	if t.home != "" {
		line += " --home " + shellword.Quote(t.home)
	}
	if t.member {
		line += " --cluster-files DIR"
	}
	return line
}

// ServerEnded says how to go on if err is that the server ended while it was called. Other errors are returned as they are.
func (t *target) ServerEnded(err error) error { return t.serverEnded(err, "") }

// serverEnded says how to go on if err is that the server ended while it was called, with more
// that is to be said then. Other errors are returned as they are.
func (t *target) serverEnded(err error, more string) error {
	if !errors.Is(err, client.ErrNoServer) {
		return err
	}
	if t.Servers() != "" {
		return &noServerError{err.Error() + more}
	}
	return &noServerError{fmt.Sprintf("the server has ended: start it again with %s%s", t.serve(), more)}
}

// detect says what listens on the port, on one line that begins with one word
// for it. Anything but a nexus server is exit status 3, and all is said by then.
func detect(ctx context.Context, a *App, _ []string) error {
	if a.Servers() != "" {
		return Usage("detect looks at a port of this machine: leave out NEXUS_SERVER, or name the port by --port")
	}
	home, err := a.Home()
	if err != nil {
		return err
	}
	found, err := a.locate(ctx, home)
	if err != nil {
		return err
	}
	word := strings.ReplaceAll(found.Detection.String(), " ", "_")
	ours := found.Detection == client.NexusServer
	switch {
	case a.Structured():
		said := struct {
			Port   int         `json:"port"`
			Found  string      `json:"found"` // nexus_server, no_server, other_service, timeout
			Health *api.Health `json:"health"`
		}{Port: a.Port, Found: word}
		if ours {
			said.Health = &found.Health
		}
		err = a.PrintValue(said)
	case ours:
		err = a.Printf("%s %s at %s, %s\n", word, found.Health.Version, found.URL, found.Health.Status)
	default:
		err = a.Printf("%s on port %d%s\n", word, a.Port, a.advice(found, home))
	}
	if err == nil && !ours {
		err = &noServerError{}
	}
	return err
}
