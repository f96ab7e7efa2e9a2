package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/client"
	"nexus.internal/cmd/internal/badflag"
	"nexus.internal/cmd/internal/config"
	"nexus.internal/protocol/suggest"
)

// Exit statuses (SPEC §2.2).
const (
	ExitDone     = 0
	ExitRefused  = 1 // the server said no, or the work failed
	ExitUsage    = 2
	ExitNoServer = 3
)

// Options say who runs the command line, and where.
type Options struct {
	Name    string // of the program
	Summary string // one line
	Version string
	Environ []string // KEY=VALUE
	Stdin   io.Reader
	Stdout  io.Writer
	Stderr  io.Writer
}

// App is one command line. Its flags are set once Run has parsed them.
type App struct {
	Options
	// Port is --port, else $NEXUS_PORT, else config.DefaultPort; a verb that calls
	// a server makes it that server's (locate).
	Port int

	apiKey  string // --api-key
	home    string // --home; "" means as the environment says
	json    bool   // --json
	noStart bool   // --no-start

	out, errs *screen // Stdout and Stderr, for what others wrote

	portFrom string // where Port comes from: --port, NEXUS_PORT or ""
	portErr  error  // what is wrong with $NEXUS_PORT

	root    *cobra.Command
	helpErr error // of --help behind a verb that is none; cobra's help returns no error
}

// New returns a command line with the verbs of nexus-rpc.
func New(o Options) *App {
	a := &App{Options: o, out: &screen{out: o.Stdout}, errs: &screen{out: o.Stderr}}
	a.root = &cobra.Command{
		Use:           o.Name + " VERB",
		Short:         o.Summary,
		Version:       o.Version,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          VerbsOnly,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	a.root.CompletionOptions.HiddenDefaultCmd = true
	a.root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return Usage("%s", badflag.Problem(err, cmd.Flags()))
	})
	a.root.SetHelpCommand(a.helpVerb())
	a.root.SetHelpFunc(a.help(a.root.HelpFunc()))
	a.root.SetIn(o.Stdin)
	a.root.SetOut(a.out)
	a.root.SetErr(o.Stderr)
	flags := a.root.PersistentFlags()
	a.Port = config.DefaultPort
	a.readPort()
	flags.Var(portFlag{a}, "port", "port of the server (default: $NEXUS_PORT, then that of the home's server, then 8765)")
	flags.StringVar(&a.apiKey, "api-key", "", "@FILE that holds the API key, or the key, which others can see in the list of processes (default: $NEXUS3_API_KEY, then the server's key file)")
	flags.StringVar(&a.home, "home", "", "home directory of nexus (default: $NEXUS_HOME, then ~/.nexus3)")
	flags.BoolVar(&a.json, "json", false, "print JSON")
	for _, verb := range a.verbs() {
		a.root.AddCommand(verb)
	}
	return a
}

// VerbsOnly is a usage error for an argument of a verb that takes verbs alone: it is
// none of them.
func VerbsOnly(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return unknownVerb(cmd, args[0])
	}
	return nil
}

// nexusVerbs are the verbs that nexus has and nexus-rpc has not.
var nexusVerbs = []string{"backup", "chaos", "config", "restore", "serve"}

// unknownVerb is the usage error for a verb that parent has not.
func unknownVerb(parent *cobra.Command, name string) error {
	var names []string
	if !parent.HasParent() {
		if parent.Name() != "nexus" && slices.Contains(nexusVerbs, name) {
			return Usage("unknown verb %q: it is one of nexus (nexus %s)", name, name)
		}
		names = append(names, "help") // which cobra does not count
	}
	for _, verb := range parent.Commands() {
		if verb.IsAvailableCommand() {
			names = append(names, verb.Name())
		}
	}
	if near := suggest.Nearest(name, names); near != "" {
		return Usage("unknown verb %q: did you mean %s %s?", name, parent.CommandPath(), near)
	}
	return Usage("unknown verb %q: see %s --help", name, parent.CommandPath())
}

// help is what --help does: it prints the help of a command, unless the argument that was
// to be one of its verbs is none.
func (a *App) help(show func(*cobra.Command, []string)) func(*cobra.Command, []string) {
	return func(cmd *cobra.Command, args []string) {
		if unknown := cmd.Flags().Args(); cmd.HasAvailableSubCommands() && len(unknown) > 0 {
			a.helpErr = unknownVerb(cmd, unknown[0])
			return
		}
		show(cmd, args)
	}
}

// initHelp adds --help to cmd and all below it before cobra looks for the verb: else it
// takes VERB of --help VERB for the value of a flag that it does not know.
func initHelp(cmd *cobra.Command) {
	cmd.InitDefaultHelpFlag()
	for _, verb := range cmd.Commands() {
		initHelp(verb)
	}
}

// helpVerb is help VERB, the same as VERB --help.
func (a *App) helpVerb() *cobra.Command {
	return &cobra.Command{
		Use: "help [VERB]", Short: "Help about a verb", DisableFlagsInUseLine: true,
		RunE: func(_ *cobra.Command, args []string) error {
			verb, rest, err := a.root.Find(args)
			if len(rest) > 0 {
				return unknownVerb(verb, rest[0])
			}
			if err != nil {
				return Usage("%v", err)
			}
			return verb.Help()
		},
	}
}

// versionVerb prints the version of the program.
func (a *App) versionVerb() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version of the program", Args: exactArgs(0),
		RunE: func(*cobra.Command, []string) error {
			if a.json {
				return a.printJSON(struct {
					Version  string `json:"version"`
					Go       string `json:"go"`
					Platform string `json:"platform"` // OS/ARCH
				}{a.Version, runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH})
			}
			return a.printf("%s version %s\n", a.Options.Name, a.Version)
		},
	}
}

// Add adds a verb of the program's own.
func (a *App) Add(cmd *cobra.Command) { a.root.AddCommand(cmd) }

// Run runs one command line and returns the exit status. What went wrong is on
// stderr by then.
func (a *App) Run(ctx context.Context, args []string) int {
	if args == nil {
		args = []string{}
	}
	// A stdout or stderr without a reader is an error of writing, not the end of
	// the process. Unlike Ignore, Notify is not handed down to what we start.
	pipes := make(chan os.Signal, 1)
	signal.Notify(pipes, syscall.SIGPIPE)
	defer signal.Stop(pipes)
	a.root.SetArgs(args)
	initHelp(a.root)
	err := errors.Join(a.root.ExecuteContext(ctx), a.helpErr)
	if lost := a.out.flush(); !errors.Is(err, lost) { // cobra does not tell that of a help text
		err = errors.Join(err, lost)
	}
	if err == nil {
		return ExitDone
	}
	if errors.Is(err, errNoReader) {
		return ExitNoReader
	}
	if text := a.advise(err); text != "" {
		a.note("%s", block(text))
	}
	if _, ok := errors.AsType[*usageError](err); ok {
		return ExitUsage
	}
	if _, ok := errors.AsType[*noServerError](err); ok {
		return ExitNoServer
	}
	return ExitRefused
}

// advise is an error with what the server suggests, a line each. Of some errors the
// suggestions say no more than the message.
func (a *App) advise(err error) string {
	text := err.Error()
	e, ok := errors.AsType[*client.RPCError](err)
	if !ok || a.json || e.Data.Type == string(api.KindInvalidParams) || e.Data.Type == string(api.KindExecutionError) {
		return text
	}
	return strings.Join(append([]string{text}, e.Data.RecoverySuggestions...), "\n")
}

// kindOf is the kind of an error that a server told; "" for another error.
func kindOf(err error) api.ErrorKind {
	if e, ok := errors.AsType[*client.RPCError](err); ok {
		return api.ErrorKind(e.Data.Type)
	}
	return ""
}

// usageError is a command line that cannot be meant.
type usageError struct{ problem string }

func (e *usageError) Error() string { return e.problem }

// Usage is the error of a wrong command line, exit status 2.
func Usage(format string, args ...any) error { return &usageError{fmt.Sprintf(format, args...)} }

// noServerError says that nothing that we can talk to listens there. Without a problem,
// that was said on stdout.
type noServerError struct{ problem string }

func (e *noServerError) Error() string { return e.problem }

// MaxArgs is a usage error for more than n arguments.
func MaxArgs(n int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) > n {
			return Usage("usage: %s", cmd.UseLine())
		}
		return nil
	}
}

// exactArgs is a usage error for any number of arguments but n.
func exactArgs(n int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != n {
			return Usage("usage: %s", cmd.UseLine())
		}
		return nil
	}
}

// getenv is a variable of the environment, "" if it is not there. Of two of a name, the
// last counts.
func (a *App) getenv(name string) (value string) {
	for _, variable := range a.Environ {
		if text, ok := strings.CutPrefix(variable, name+"="); ok {
			value = text
		}
	}
	return value
}

// environ is the environment with --home in it.
func (a *App) environ() ([]string, error) {
	if a.home == "" {
		return a.Environ, nil
	}
	home, err := filepath.Abs(a.home)
	if err != nil {
		return nil, fmt.Errorf("resolve --home: %w", err)
	}
	return append(append([]string{}, a.Environ...), "NEXUS_HOME="+home), nil // the last one counts
}

// Home is the home by the environment and --home.
func (a *App) Home() (string, error) {
	environ, err := a.environ()
	if err != nil {
		return "", err
	}
	return config.HomeOf(environ)
}

// Config is what the environment and --home say. No file is read: whether
// config.json is right is its server's business.
func (a *App) Config() (*config.Config, error) {
	environ, err := a.environ()
	if err != nil {
		return nil, err
	}
	return config.Environment(environ)
}

// LoadConfig is Config with config.json of the home, or the file at path in its place
// unless that is "". No project's file is read: a server must not depend on where it
// was started.
func (a *App) LoadConfig(path string) (*config.Config, error) {
	environ, err := a.environ()
	if err != nil {
		return nil, err
	}
	if path != "" {
		return config.LoadAs(path, environ, "/")
	}
	return config.Load(environ, "/")
}

// interruptible ends with ctx or with SIGINT. The second one ends the program.
func interruptible(ctx context.Context) (context.Context, context.CancelFunc) {
	return signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
}
