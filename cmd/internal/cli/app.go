package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/client"
	"nexus.internal/cmd/internal/badflag"
	"nexus.internal/protocol"
	"nexus.internal/protocol/homeformat"
	"nexus.internal/protocol/jsonrpc"
	"nexus.internal/protocol/shellword"
	"nexus.internal/protocol/writequeue"
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
	// Cwd is where agents are created; "" for the directory of this process.
	Cwd string
	// Columns is how wide lists are, where Stdout is no terminal that says so; 0 for as wide as they need.
	Columns int
	// Slash says that verbs are typed behind a slash, in a talk: what is said names them so, and what
	// goes wrong is said without the program's name.
	Slash bool
}

// App is one command line. Its flags are set once Run has parsed them.
type App struct {
	Options
	*printer
	*target

	// Started is the process of the server that Connect has started; 0 if it has started none.
	Started int
	// Brought is what came of the verb create; nil if that has brought no agent.
	Brought *api.CreateAgentResult
	// ServeFlags are further flags of nexus serve, for a server that is started.
	ServeFlags []string

	root    *cobra.Command
	alone   *pflag.FlagSet // what Alone has set
	helpErr error          // of --help behind a verb that is none; cobra's help returns no error
}

// New returns a command line with the verbs of nexus-rpc.
func New(o Options) *App {
	t := newTarget(o.Environ)
	a := &App{
		Options: o,
		printer: &printer{name: o.Name, slash: o.Slash, out: t.screen(o.Stdout), errs: t.screen(o.Stderr)},
		target:  t,
		alone:   pflag.NewFlagSet(o.Name, pflag.ContinueOnError),
	}
	a.out.wide = o.Columns
	a.root = &cobra.Command{
		Use:           o.Name + " VERB",
		Short:         o.Summary,
		Version:       o.Version,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          VerbsOnly,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	a.root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		problem := badflag.Problem(err, cmd.Flags())
		if unknown, is := errors.AsType[*pflag.NotExistError](err); is && cmd.HasParent() && a.alone.Lookup(unknown.GetSpecifiedName()) != nil {
			verb := strings.TrimPrefix(cmd.CommandPath(), a.Name+" ")
			return Usage("--%s is a flag of a talk, which is %s without a verb, and %s is a verb: %s --help has its flags", unknown.GetSpecifiedName(), a.Name, verb, cmd.CommandPath())
		}
		if unknown, is := errors.AsType[*pflag.NotExistError](err); is && !cmd.HasParent() {
			// A flag that only verbs have takes the verb for its value where it stands before that.
			for _, verb := range cmd.Commands() {
				if verb.Flags().Lookup(unknown.GetSpecifiedName()) != nil {
					return Usage("unknown flag: --%s: flags of a verb stand behind it, as in %s --%s", unknown.GetSpecifiedName(), verb.CommandPath(), unknown.GetSpecifiedName())
				}
			}
		}
		if _, unknown := errors.AsType[*pflag.NotExistError](err); unknown && problem == err.Error() && strings.Contains(cmd.Use, "MESSAGE") {
			problem += ": put -- before a message that begins with -"
		}
		return Usage("%s", problem)
	})
	a.root.SetHelpCommand(helpVerb(a.root))
	a.root.SetHelpFunc(a.help(a.root.HelpFunc()))
	a.root.SetIn(o.Stdin)
	a.root.SetOut(a.out)
	a.root.SetErr(o.Stderr)
	flags := a.root.PersistentFlags()
	flags.Var(portFlag{a.target}, "port", "port of the server (default: $NEXUS_PORT, also beside --home; then that of the home's server; then 8765)")
	flags.StringVar(&a.server, "server", "", "`URLS` of a server on another machine, as in https://HOST:PORT, or of several that are one, with commas between them: where one is not to be had, the next is called. The key is good at all of them. Or http://127.0.0.1:PORT, on this machine (default: $NEXUS_SERVER)")
	flags.StringVar(&a.ca, "ca", "", "`FILE` with the authorities that sign the certificates of --server (default: $NEXUS_CA, then those of the system)")
	flags.StringVar(&a.apiKey, "api-key", "", "@FILE that holds the API key; or the key, which other users can see in the list of processes (default: $NEXUS3_API_KEY, then the server's key file)")
	flags.StringVar(&a.home, "home", "", "home directory of nexus (default: $NEXUS_HOME, then ~/.nexus3)")
	flags.VarP(formatFlag{printer: a.printer}, "output", "o", "table for people (the default), json, yaml, or name for the names alone; of json and yaml, an error is JSON on stderr")
	flags.Var(formatFlag{a.printer, true}, "json", "the same as --output json")
	flags.Lookup("json").NoOptDefVal = "true"
	for _, r := range verbs() {
		a.root.AddCommand(a.command(r))
	}
	return a
}

// Add adds a verb of the program's own, in the place of one of nexus-rpc that has its name.
func (a *App) Add(cmd *cobra.Command) {
	for _, other := range a.root.Commands() {
		if other.Name() == cmd.Name() {
			a.root.RemoveCommand(other)
		}
	}
	a.root.AddCommand(cmd)
	cmd.SetHelpFunc(a.help(cmd.HelpFunc())) // also where it has one of its own
}

// Root is the tree of the verbs, for what describes it.
func (a *App) Root() *cobra.Command { return a.root }

// Alone sets what the program does without a verb, which is to show its help otherwise, its flags, and what the help says of it.
func (a *App) Alone(run func(cmd *cobra.Command) error, flags func(*pflag.FlagSet), help string) {
	a.root.Use, a.root.Long = a.Name+" [VERB]", a.Summary+". "+help
	a.root.RunE = func(cmd *cobra.Command, _ []string) error { return run(cmd) }
	flags(a.alone)
	a.root.Flags().AddFlagSet(a.alone)
}

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
	a.root.InitDefaultCompletionCmd(args...)
	if script, _, err := a.root.Find([]string{"completion"}); err == nil && script != a.root {
		Without(script, "it writes a script for a shell", "home", "port", "server", "ca", "api-key", "json", "output")
	}
	a.prepare(a.root)
	if completing(args) {
		a.completes(a.root)
	}
	ran, err := a.root.ExecuteContextC(ctx)
	err = errors.Join(err, a.helpErr)
	if lost := a.out.flush(); !errors.Is(err, lost) { // cobra does not tell that of a help text
		err = errors.Join(err, lost)
	}
	if err == nil {
		return ExitDone
	}
	if errors.Is(err, ErrNoReader) || a.unread(err) {
		return ExitNoReader
	}
	err = a.serverEnded(err, "")
	status, kind := KindOf(err)
	if a.Slash && status == ExitUsage { // cobra has the verb's name
		err = Usage("%s", strings.ReplaceAll(err.Error(), a.Name+" ", "/"))
	}
	switch {
	case err.Error() == "":
	case a.errorsAsJSON(args, status == ExitUsage):
		a.errorJSON(err, kind)
	default:
		a.note("%s", block(a.advise(ran, err)))
	}
	return status
}

// endedError is the end of a command line that another one has run: what went wrong was said there.
type endedError struct{ status int }

func (*endedError) Error() string { return "" }

// Ended is the error of a command line that ends as another one did, which has said why: with that exit status, not 0.
func Ended(status int) error { return &endedError{status} }

// KindOf is the exit status of an error, and its type where no server gave it one.
func KindOf(err error) (status int, kind string) {
	if _, ok := errors.AsType[*usageError](err); ok {
		return ExitUsage, "USAGE"
	}
	if _, ok := errors.AsType[*noServerError](err); ok || errors.Is(err, client.ErrNoServer) {
		return ExitNoServer, "NO_SERVER"
	}
	if _, ok := errors.AsType[*homeformat.NewerError](err); ok {
		return protocol.ExitHomeNewer, "HOME_NEWER"
	}
	if ended, ok := errors.AsType[*endedError](err); ok {
		return ended.status, "FAILED"
	}
	if isUnreached(err) {
		return ExitRefused, string(api.KindNodeUnreachable)
	}
	return ExitRefused, "FAILED"
}

// errorJSON writes an error as a line of JSON to stderr: that of a server as it is, and
// another one, without a code, with kind as its type.
func (a *App) errorJSON(err error, kind string) {
	type object struct {
		Code    int               `json:"code,omitzero"`
		Message string            `json:"message"`
		Data    jsonrpc.ErrorData `json:"data"`
	}
	said := object{Message: err.Error(), Data: jsonrpc.ErrorData{Type: kind}}
	if e, ok := errors.AsType[*client.RPCError](err); ok {
		said = object{e.Code, e.Message, e.Data}
	}
	line, failed := json.Marshal(struct {
		Error object `json:"error"`
	}{said}, jsontext.AllowInvalidUTF8(true))
	if failed != nil {
		a.note("%s", block(err.Error()))
		return
	}
	_, _ = a.errs.Write(append(line, '\n')) // there is no other place to say that it fails
}

// advise is an error of the verb that ran with what the server suggests, a line each. Of some
// errors the suggestions say no more than the message.
func (a *App) advise(ran *cobra.Command, err error) string {
	text := a.inFlags(ran, err.Error())
	e, ok := errors.AsType[*client.RPCError](err)
	if errors.Is(err, client.ErrUnproved) && (!ok || len(e.Data.RecoverySuggestions) == 0) { // else what listens said why, as that it speaks TLS
		return text + "\n" + a.adviseKey()
	}
	if !ok || e.Data.Type == string(api.KindInvalidParams) || e.Data.Type == string(api.KindExecutionError) {
		return text
	}
	for _, suggestion := range e.Data.RecoverySuggestions {
		text += "\n" + a.inVerbs(ran, suggestion)
	}
	return text
}

// adviseKey says what to do about a key that the server does not have.
func (a *App) adviseKey() string {
	const why = " has ended (revoke_key, expires_s), was replaced, or is of another server"
	switch {
	case a.Servers() != "":
		return "The key" + why + "."
	case a.apiKey != "":
		return "The key of --api-key" + why + ". Without --api-key the server's own key file is used."
	case slices.ContainsFunc(a.Environ, func(v string) bool { return strings.HasPrefix(v, "NEXUS3_API_KEY=") && v != "NEXUS3_API_KEY=" }):
		return "The key of NEXUS3_API_KEY" + why + ". Without that variable the server's own key file is used."
	default:
		return "The key file of the home is of another server: name the home of the one that is meant by --home."
	}
}

// Call is how a verb is called here: with this program's name, and as far as it matters with the server
// that is meant.
func (a *App) Call(verb string) string {
	if a.Slash {
		return "/" + verb
	}
	name := a.Name
	if a.home != "" {
		name += " --home " + shellword.Quote(a.home)
	}
	if a.server != "" {
		name += " --server " + shellword.Quote(a.server)
	}
	if a.ca != "" {
		name += " --ca " + shellword.Quote(a.ca)
	}
	if a.portFrom == fromFlag {
		name += fmt.Sprintf(" --port %d", a.Port)
	}
	return name + " " + verb
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

// Args is a usage error for fewer arguments than least, or more than most.
func Args(least, most int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < least || len(args) > most {
			hint := ""
			if len(args) > most && strings.Contains(cmd.Use, "MESSAGE") {
				hint = ": a message of several words is one in quotes"
			}
			return Usage("usage: %s%s", cmd.UseLine(), hint)
		}
		return nil
	}
}

// ExitNoReader is what a shell calls the end by SIGPIPE: whoever read stdout wants no
// more, as in "nexus-rpc events | head".
const ExitNoReader = 128 + int(syscall.SIGPIPE)

// ErrNoReader says that nobody reads stdout any more. It is the end of a verb, and no
// failure to report.
var ErrNoReader = errors.New("nobody reads stdout any more")

// unread reports whether err is that of a write past the printer to a stdout that nobody reads any more.
func (a *App) unread(err error) bool {
	out, ok := a.Stdout.(*os.File)
	failed, is := errors.AsType[*fs.PathError](err)
	return ok && is && failed.Op == "write" && failed.Path == out.Name() && errors.Is(failed, syscall.EPIPE)
}

// untilNoReader is a context that ends when nobody reads stdout any more, with ErrNoReader
// for its cause: a verb that prints seldom would not notice. The caller must call stop.
func untilNoReader(ctx context.Context, stdout io.Writer) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	unwatch := func() {}
	if out, ok := stdout.(*os.File); ok {
		unwatch = writequeue.WatchReader(out, func() { cancel(ErrNoReader) })
	}
	return ctx, func() {
		cancel(nil)
		unwatch()
	}
}
