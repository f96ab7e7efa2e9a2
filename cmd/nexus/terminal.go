package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/client"
	"nexus.internal/cmd/internal/cli"
	"nexus.internal/cmd/internal/config"
	"nexus.internal/cmd/internal/terminal"
	"nexus.internal/protocol/homeformat"
)

// conversation is nexus without a verb: a talk with an agent, at a terminal, by lines, or of one message.
type conversation struct {
	o       terminal.Options
	connect string // --connect; "-" for the home's server
	yolo    bool
	logDir  string // --log-dir and --raw-log, of the server if one is started
	rawLog  bool
}

// aloneHelp is what the help says of nexus without a verb.
const aloneHelp = "Without a verb it is a talk with an agent, in this directory: it finds the server of the home, or starts one. " +
	"nexus serve is the server alone."

// noURL is the value that --connect gets without one (flagAsVerb).
const noURL = "-"

func (v *conversation) flags(f *pflag.FlagSet) {
	f.BoolVar(&v.o.Resume, "resume", false, "go on with the session that you used last")
	f.BoolVar(&v.o.Fresh, "fresh", false, "begin a session, as a temporary agent")
	f.StringVar(&v.o.Session, "session", "", "go on with this saved session")
	f.StringVar(&v.connect, "connect", "", "start no server, and talk to an agent of one that runs: at the `[URL]`, http://127.0.0.1:PORT or https://HOST:PORT, or without one that of the home")
	f.StringVar(&v.o.Agent, "agent", "", "the agent that is talked to; with --connect (default: main, or the only one)")
	f.StringVar(&v.o.Template, "template", "", "file with the system prompt of a fresh session")
	f.StringVar(&v.o.Model, "model", "", "model, as ID or PROVIDER/ID")
	f.StringVar(&v.o.Preset, "preset", "", "permission level: trusted or sandboxed")
	f.StringVar(&v.o.Cwd, "cwd", "", "working directory of new agents (default: this one)")
	f.BoolVar(&v.yolo, "yolo", false, "the same as --preset yolo, which the owner of the server has to allow (allow_yolo)")
	cli.Sets(f, "yolo", "preset")
	cli.Sets(f, "template", "system_prompt")
	cli.Sets(f, "session", "session_name", "agent_id")
	cli.Sets(f, "agent", "session_name", "agent_id")
	f.StringVar(&v.logDir, "log-dir", "", "log all sessions in this directory; of the server, if one is started")
	f.BoolVar(&v.rawLog, "raw-log", false, "log all sessions with every event; of the server, if one is started")
	f.BoolVar(&v.o.Verbose, "verbose", false, "show calls whole, and what each turn took")
	f.BoolVar(&v.o.Plain, "plain", false, "read and write lines, and draw nothing twice: for screen readers, and terminals that cannot do more")
}

// chosen is how many ways to an agent are named.
func (v *conversation) chosen() (n int) {
	for _, named := range []bool{v.o.Resume, v.o.Fresh, v.o.Session != "", v.o.Agent != ""} {
		if named {
			n++
		}
	}
	return n
}

func (v *conversation) check(f *pflag.FlagSet) error {
	switch {
	case f.Changed("output") || f.Changed("json"):
		return cli.Usage("--output and --json are for verbs, as in nexus list --json: a talk is text")
	case f.Changed("server") && v.connect != "" && v.connect != noURL:
		return cli.Usage("--server and --connect with a URL exclude each other")
	case v.chosen() > 1:
		return cli.Usage("--resume, --fresh, --session and --agent exclude each other")
	case v.yolo && v.o.Preset != "":
		return cli.Usage("--yolo and --preset exclude each other")
	case v.o.Template != "" && (v.o.Resume || v.o.Session != "" || v.o.Agent != ""):
		return cli.Usage("--template is for a fresh session")
	}
	return nil
}

// run is the work of nexus without a verb.
func (v *conversation) run(cmd *cobra.Command, app *cli.App) error {
	if err := v.check(cmd.Flags()); err != nil {
		return err
	}
	typed, drawn := cli.IsTerminal(app.Stdin), cli.IsTerminal(app.Stdout)
	if !typed && v.chosen() == 0 && v.connect == "" && !v.o.Plain {
		return cli.Usage("nobody types here, and no session is named: echo QUESTION | nexus --fresh (or --resume, --session, --agent); see nexus --help")
	}
	if v.yolo {
		v.o.Preset = "yolo"
	}
	home, err := app.Home()
	if err == nil {
		err = homeformat.Check(home) // also where a server runs: what is typed is kept in the home
	}
	if err != nil {
		return err
	}
	if err := v.place(); err != nil {
		return err
	}
	if err := v.setServer(app); err != nil {
		return err
	}
	once := !typed && !v.o.Plain
	v.o.Stdin = app.Stdin
	if once { // before a server is started for it
		message, err := cli.ReadMessage(app.Stdin, "-")
		if err != nil {
			return err
		}
		v.o.Stdin = strings.NewReader(message)
	}
	ctx, stop := v.heedSignals(cmd.Context())
	defer stop()
	c, err := v.reach(ctx, app)
	if err != nil {
		return err
	}
	defer c.Close()
	if v.connect != "" && v.chosen() == 0 {
		if v.o.Agent, err = someAgent(ctx, c); err != nil {
			return err
		}
	}
	if typed {
		v.o.Terminal, _ = app.Stdin.(*os.File)
	}
	v.o.Program = strings.TrimSpace(app.Call(""))
	v.o.Version, v.o.Stdout, v.o.Stderr = app.Version, app.Stdout, app.Stderr
	if v.o.Environ, v.o.Home, err = app.Found(); err != nil {
		return err
	}
	if app.Started == 0 {
		v.o.Server = fmt.Sprintf("the server at %s has proved to have the key", c.URL())
	}
	if app.Started == 0 && app.Servers() == "" {
		v.o.Server = fmt.Sprintf("the server on port %d has proved to be that of %s", app.Port, v.o.Home)
	}
	v.o.After = afterTheEnd(app, v.o.Home)
	switch {
	case once:
		return terminal.Once(ctx, c, v.o)
	case !drawn || dumb(app.Environ):
		v.o.Plain = true
	}
	return terminal.Run(ctx, c, v.o)
}

// afterTheEnd says what to do once the server has ended where no verb starts one; else it is "".
func afterTheEnd(app *cli.App, home string) string {
	cluster, machine := config.Home(home).Machine()
	switch {
	case app.Servers() != "":
		return "start it again, or ask another one by --server"
	case cluster != "":
		return fmt.Sprintf("the other machines of the cluster %s go on with what %s had: ask one of them by --server, or start this one again", cluster, machine)
	}
	return ""
}

// place finds the directory of new agents.
func (v *conversation) place() (err error) {
	v.o.Cwd, err = cli.Absolute(v.o.Cwd)
	return err
}

// setServer takes the URL of --connect, and refuses what names no server.
func (v *conversation) setServer(app *cli.App) error {
	at, err := client.CheckURL(v.connect)
	switch {
	case v.connect == "" || v.connect == noURL:
	case strings.HasPrefix(v.connect, "https://"):
		app.SetServers(v.connect)
	case err != nil || at.Port() == "":
		return cli.Usage("--connect takes http://127.0.0.1:PORT, or https://HOST:PORT and others after commas, not %q", v.connect)
	default:
		if err := app.ConnectPort(at.Port()); err != nil {
			return err
		}
	}
	return app.CheckServers()
}

// heedSignals has signals end the talk rather than the process, which would leave the server behind that is started
// for the talk: SIGTERM and SIGHUP by the end of ctx, SIGINT as the options say. The caller must call stop.
func (v *conversation) heedSignals(ctx context.Context) (_ context.Context, stop func()) {
	ctx, unhear := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGHUP)
	v.o.Interrupts = make(chan os.Signal, 1) // one is enough: reach puts back what it has read
	signal.Notify(v.o.Interrupts, os.Interrupt)
	return ctx, func() {
		signal.Stop(v.o.Interrupts)
		unhear()
	}
}

// reach finds the server, or starts one. A SIGINT ends the search, and is there for the talk if a server was started.
func (v *conversation) reach(ctx context.Context, app *cli.App) (*client.Client, error) {
	ctx, leave := context.WithCancel(ctx)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer leave()
	watching.Go(func() {
		select {
		case s := <-v.o.Interrupts:
			select {
			case v.o.Interrupts <- s:
			default: // there are others
			}
			leave()
		case <-ctx.Done():
		}
	})
	app.ServeFlags = append(app.ServeFlags, "--log-sessions") // somebody talks
	if v.logDir != "" {
		dir, err := filepath.Abs(v.logDir)
		if err != nil {
			return nil, fmt.Errorf("find --log-dir: %w", err)
		}
		app.ServeFlags = append(app.ServeFlags, "--log-dir", dir)
	}
	if v.rawLog {
		app.ServeFlags = append(app.ServeFlags, "--raw-log")
	}
	c, err := app.Connect(ctx, v.connect == "")
	v.o.Started = app.Started > 0
	if err != nil && v.o.Started { // it did not answer at once, say
		_ = syscall.Kill(app.Started, syscall.SIGTERM) // or it has ended; its number is of no other process while we live
	}
	if err != nil && ctx.Err() != nil {
		return nil, errors.New("") // as it was asked to end
	}
	if err == nil && app.Started == 0 && (v.logDir != "" || v.rawLog) {
		c.Close()
		return nil, cli.Usage("--log-dir and --raw-log are of a server that is started here, and one runs already: leave them out, or set logs in its configuration and restart it")
	}
	return c, err
}

// someAgent is main, or the only agent there is.
func someAgent(ctx context.Context, c *client.Client) (string, error) {
	all, err := client.Do(ctx, c, "", api.ListAgents, api.None{})
	if err != nil {
		return "", err
	}
	var names []string
	for _, a := range all.Agents {
		if a.AgentID == "main" {
			return "main", nil
		}
		names = append(names, a.AgentID)
	}
	switch {
	case len(names) == 0:
		return "", cli.MissingAt(c, errors.New("the server runs no agent: name one by --agent, or begin one by --fresh"), all.UnreachableNodes)
	case len(names) == 1 && len(all.UnreachableNodes) == 0 && c.Stale() == "":
		return names[0], nil
	}
	return "", cli.MissingAt(c, fmt.Errorf("which agent? name one by --agent: %s", strings.Join(names, ", ")), all.UnreachableNodes)
}

// dumb reports whether the terminal draws nothing.
func dumb(environ []string) bool {
	kind := cli.Variable(environ, "TERM")
	return kind == "dumb" || kind == ""
}
