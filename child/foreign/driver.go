package foreign

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/tidwall/gjson"
	"go.uber.org/zap"

	"nexus.internal/protocol"
)

// Driver speaks the protocol of one make of agents. It is safe for concurrent use.
type Driver interface {
	// Open starts a program and brings it to where it takes prompts. ctx bounds that alone. On
	// an error, which says what went wrong, nothing of it is left. An error that wraps ErrNotResumed
	// says that the program works but does not go on with Opening.Resume: it is opened again without.
	Open(ctx context.Context, o Opening) (Session, error)
}

// ErrNotResumed says that a program does not have the conversation that it was to go on with.
var ErrNotResumed = errors.New("the program does not go on with its conversation")

// Opening is what a session begins with.
type Opening struct {
	// Launcher starts the program. The driver adds the arguments that its protocol needs.
	Launcher
	// Cwd is the working directory, absolute.
	Cwd string
	// Resume is the program's own id of the conversation to go on with; "" begins another.
	Resume string
	// Model and System are the model and the system prompt that were asked for; "" leaves both to
	// the program.
	Model, System string
	// Client answers what the program asks for.
	Client Client
	// Version is that of nexus, for programs that want to know.
	Version string
	Log     *zap.Logger
}

// Session is a live program and the conversation that it has. Prompt is called once at a time.
type Session interface {
	// About is what the program says of itself and of the conversation now. It is safe for
	// concurrent use.
	About() About
	// Program is the process whose end is that of the session; nil if each prompt has one of its own.
	Program() *Program
	// Prompt runs one turn and returns when the program has ended it. Once ctx ends, it asks the
	// program to cancel, and still waits for the turn's end, which is Done with StopAborted then. All calls of
	// sink are made before it returns. An error that wraps ErrEnded says that the program is gone;
	// with any other the program takes the next prompt. A *TurnError says what it was about.
	Prompt(ctx context.Context, p Prompt, sink Sink) (Done, error)
	// Close ends the program and joins all goroutines. It takes a second at most.
	Close()
}

// About is what is known of a program.
type About struct {
	Name, Version string // "" if it does not say
	Session       string // its own id of the conversation, by which it can be resumed; "" if it has none
	Model         string // that it uses; "" if it does not say
	// Stateless says that each prompt stands alone: there is no conversation to go on with.
	Stateless bool
}

// ModelSetter is a Session whose model can be changed between turns.
type ModelSetter interface {
	// SetModel returns once the program has agreed, or with its refusal.
	SetModel(ctx context.Context, model string) error
	// Models are those that the program offers; nil if it does not say.
	Models() []protocol.Model
}

// Prompt is what a turn begins with.
type Prompt struct {
	TurnID string
	// Text is all of it for a program that takes text alone: files are inlined or named in it.
	Text string
	// Images are those that Text names, for a program that takes them.
	Images []Image
}

// Image is one image.
type Image struct {
	MIME string
	Data []byte // at most images.MaxSize
}

// Done is how a turn ended that did not fail.
type Done struct {
	Stop  protocol.StopReason
	Usage protocol.TurnUsage // of the whole turn, as far as the program tells
}

// TurnError is a turn that failed though the program lives.
type TurnError struct {
	Message string
	// Reason is that of a protocol.Refusal, "" for none.
	Reason string
}

func (e *TurnError) Error() string { return e.Message }

// Sink takes what a program says in a turn, in its order. The methods may wait: a program goes no
// faster than it is read. One goroutine at a time calls them.
type Sink interface {
	Text(delta string)
	Thinking(delta string)
	// Call tells of a call, or more of one that was told of: members that are empty say nothing.
	Call(c Call)
	// Output is a piece of what a running call puts out.
	Output(id, text string)
	// Result ends a call. Without one a call ends with its turn.
	Result(id, text string, failed bool)
	// Named says what the program calls the conversation from now on.
	Named(session string)
	// Foreign passes on a message that nothing else stands for.
	Foreign(message []byte)
}

// Call is a call of one of the program's own tools.
type Call struct {
	ID    string
	Name  string
	Input jsontext.Value // an object; nil if it is not known yet
}

// Client is what a program may ask of whoever runs it. It is safe for concurrent use. Errors are
// words for the program.
type Client interface {
	// Permit decides whether a call may run, and asks the parent where that is to be asked. The
	// answer names one of the options if there are any of its kind.
	Permit(ctx context.Context, q Question) (protocol.PermissionResponse, error)
	// ReadFile and WriteFile do what the tools read_file and write_file may, asking as they do.
	ReadFile(ctx context.Context, turnID, path string) (string, error)
	WriteFile(ctx context.Context, turnID, path, text string) error
}

// Question is a call that a program asks about.
type Question struct {
	TurnID string
	Call
	Action  protocol.Action
	Summary string   // one line; "" names the call
	Command string   // what a shell would run; "" for no shell
	Paths   []string // that it reads or changes, as far as known
	Hosts   []string // of ActionFetch: whose pages it fetches
	Runs    bool     // there may be a command anywhere in it: it is shown whole, whatever the action
	Options []protocol.PermissionOption
}

// Change makes of q a question about a change of files. Where the program does not say of which, a yes for the session
// would be for any: then there is one for this once alone.
func (q *Question) Change(paths []string) {
	if q.Paths = paths; len(paths) > 0 {
		q.Action = protocol.ActionWrite
		return
	}
	q.Options = slices.DeleteFunc(q.Options, func(o protocol.PermissionOption) bool { return o.Kind == protocol.AllowSession })
}

// Fetch makes of q a question about pages of the network. Where a command is to run, or a file is named, too, as one that is sent
// there, or not all is known, it stays one about a tool of somebody else's.
func (q *Question) Fetch(n Names) {
	switch {
	case len(n.Hosts) == 0 || n.Unclear || n.Command:
	case len(n.Paths) > 0:
		q.Paths = n.Paths
	default:
		q.Action, q.Hosts = protocol.ActionFetch, n.Hosts
	}
}

// OfFiles makes of q a question about files that are read, or changed. Where a command is to run or a page to be fetched, too, or not all
// is known, it stays one about a tool of somebody else's.
func (q *Question) OfFiles(n Names, change bool) {
	if n.Unclear || !n.Known || n.Command || len(n.Hosts) > 0 {
		n.Paths = nil
	}
	switch q.Paths = n.Paths; {
	case change:
		q.Change(n.Paths)
	case len(n.Paths) > 0: // none is not the same as none for certain, which would stand for the working directory
		q.Action = protocol.ActionRead
	}
}

// Choose is the option for an answer: the one that it names, if that is of its kind, else the first of the
// kinds that suit, nil if there is none. What was allowed for the session, nexus remembers itself, so the
// program is told to go on this once: it asks again, and what is revoked meanwhile is.
func (q Question) Choose(r protocol.PermissionResponse) *protocol.PermissionOption {
	kinds := []protocol.Decision{r.Decision}
	if r.Decision == protocol.AllowSession {
		kinds = []protocol.Decision{protocol.AllowOnce, protocol.AllowSession}
	}
	suits := func(o protocol.PermissionOption) bool { return slices.Contains(kinds, o.Kind) }
	for i, o := range q.Options {
		if r.OptionID != "" && o.ID == r.OptionID && suits(o) {
			return &q.Options[i]
		}
	}
	for _, kind := range kinds {
		for i, o := range q.Options {
			if o.Kind == kind {
				return &q.Options[i]
			}
		}
	}
	return nil
}

// Decide has somebody decide, and returns the option that was chosen; nil if there is none, or ctx has ended. A question
// that cannot be asked gets a no.
func (q Question) Decide(ctx context.Context, client Client, log *zap.Logger) *protocol.PermissionOption {
	answer, err := client.Permit(ctx, q)
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		log.Warn("the program's question cannot be asked: it gets a no", zap.Error(err))
		answer = protocol.PermissionResponse{Decision: protocol.Deny}
	}
	return q.Choose(answer)
}

// MaxSummary bounds the summary of a question, in bytes.
const MaxSummary = 300

// Words are what the content of a result says: text, or blocks of a type.
func Words(content gjson.Result) string {
	if content.Type == gjson.String {
		return content.Str
	}
	var parts []string
	for _, b := range content.Array() {
		if b.Get("type").Str == "text" {
			parts = append(parts, b.Get("text").Str)
		} else {
			parts = append(parts, "("+cmp.Or(b.Get("type").Str, "unknown")+")")
		}
	}
	return strings.Join(parts, "\n")
}

// Instructed is a prompt with a system prompt before it, for protocols that have no place for one.
func Instructed(system, prompt string) string {
	return "<instructions>\n" + system + "\n</instructions>\n\n" + prompt
}

// Silent is the error of a wait that ctx has ended: what the program did not do (it does not answer), in time if that is why. It wraps the error of ctx.
func Silent(ctx context.Context, what string) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return &lateError{what}
	}
	return fmt.Errorf("%s: %w", what, ctx.Err())
}

type lateError struct{ what string }

func (e *lateError) Error() string { return e.what + " in time" }
func (*lateError) Unwrap() error   { return context.DeadlineExceeded }

// ErrEnded says that the program has ended by itself. What it was about to say is lost.
var ErrEnded = errors.New("the program has ended")

// EndError is how a program ended. It wraps ErrEnded.
type EndError struct {
	Name string
	How  string // such as "exit status 1"
}

func (e *EndError) Error() string {
	return fmt.Sprintf("the agent's program %s has ended: %s", e.Name, e.How)
}
func (e *EndError) Unwrap() error { return ErrEnded }
