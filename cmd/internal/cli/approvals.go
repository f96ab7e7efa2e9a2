package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/spf13/pflag"
	"github.com/tidwall/gjson"

	"nexus.internal/bridge/api"
	"nexus.internal/bridge/client"
	"nexus.internal/protocol"
)

// asked is a permission request and who asks it.
type asked struct {
	AgentID string `json:"agent_id"`
	protocol.PermissionRequest
}

// pending are the requests that wait, agent by agent, the oldest of each first: of the named
// agent, or with "" of all, but for those of the machines that are not reached.
func pending(ctx context.Context, c *client.Client, agent string) (all []asked, unreached []string, err error) {
	all = []asked{}
	if agent != "" {
		now, err := client.Do(ctx, c, agent, api.GetPermissions, api.None{})
		for _, request := range now.Pending {
			all = append(all, asked{agent, request})
		}
		if client.KindOf(err) != api.KindServerDraining { // it still lists its agents
			return all, nil, err
		}
	}
	agents, err := client.Do(ctx, c, "", api.ListAgents, api.None{})
	switch {
	case client.KindOf(err) == api.KindNotPermitted:
		return nil, nil, fmt.Errorf("%w: name the agent before the request", err)
	case err != nil:
		return nil, nil, err
	}
	for _, one := range agents.Agents {
		for _, request := range one.Pending {
			if agent == "" || agent == one.AgentID {
				all = append(all, asked{one.AgentID, request})
			}
		}
	}
	return all, agents.UnreachableNodes, nil
}

func approvals(ctx context.Context, a *App, c *client.Client, args []string) error {
	agent := ""
	if len(args) > 0 {
		agent = args[0]
	}
	all, unreached, err := pending(ctx, c, agent)
	if err != nil {
		return err
	}
	a.NoteUnreached(unreached)
	switch {
	case a.Structured():
		return a.PrintValue(struct {
			Pending []asked `json:"pending"`
		}{all})
	case len(all) == 0:
		return a.Printf("nothing waits\n")
	}
	for _, one := range all {
		if err := a.Printf("%s", one.describe()); err != nil {
			return err
		}
	}
	return nil
}

// apart is a text of a request that is shown in its lines.
type apart struct {
	what  string
	text  string
	place gjson.Result // in the input, where it is left out; not there if it is not left out
}

// apart are the texts of a request that are shown in their lines: the command, if it is not in the input already or has several, and
// the other texts that run which have. cut says that the input is not whole.
func (one asked) apart(input gjson.Result, cut bool) (all []apart) {
	command := input.Get("command")
	inInput := !cut && command.String() == one.Command
	if one.Command != "" && (!inInput || strings.Contains(one.Command, "\n")) { // that of an MCP server stands in no input
		a := apart{what: "the whole command", text: one.Command}
		if inInput {
			a.place = command
		}
		if cut {
			a.what = "the command alone, without the rest of the input, of which only the beginning and the end are shown"
		}
		all = append(all, a)
	}
	if one.Action == protocol.ActionExecute && !cut {
		for _, name := range []string{"stdin", "text"} {
			if v := input.Get(name); v.Type == gjson.String && strings.Contains(v.Str, "\n") {
				all = append(all, apart{"the whole " + name, v.Str, v})
			}
		}
	}
	return all
}

// describe is what somebody decides by, in lines of ours: the whole call, or as much of
// it as the child gave and that this is not all, and never less of a command. A command
// of several lines is shown in its lines, and not in the input, as is what a command or a job reads.
func (one asked) describe() lines {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s: %s ", line(one.RequestID), line(one.AgentID), visible(one.ToolName))
	input := gjson.ParseBytes(one.Input)
	var whole protocol.Truncation
	cut := json.Unmarshal(one.Input, &whole) == nil && whole.Truncated
	texts := one.apart(input, cut)
	left := slices.Clone(texts)
	slices.SortFunc(left, func(a, b apart) int { return a.place.Index - b.place.Index })
	raw, from := cmp.Or(input.Raw, string(one.Input)), 0
	for _, a := range left {
		if at := a.place.Index; at > 0 {
			b.WriteString(visibleJSON(raw[from:at]) + "…")
			from = at + len(a.place.Raw)
		}
	}
	b.WriteString(visibleJSON(raw[from:]))
	if cut {
		fmt.Fprintf(&b, " (cut: its input has %d bytes)", whole.Size)
	}
	b.WriteString("\n")
	for _, a := range texts {
		fmt.Fprintf(&b, "  %s, %d bytes:\n", a.what, len(a.text))
		for text := range strings.SplitSeq(a.text, "\n") {
			b.WriteString("  | " + visible(text) + "\n")
		}
	}
	if one.Command == "" && len(one.Input) <= len("{}") { // there is nothing else to decide by
		b.WriteString("  " + visible(one.Summary) + "\n")
	}
	if (cut || one.Options != nil) && len(one.Paths) > 0 { // a program's need not be in the input
		b.WriteString("  in " + visible(strings.Join(one.Paths, ", ")) + "\n")
	}
	if one.ForSession != "" && slices.Contains(one.Decisions, protocol.AllowSession) {
		b.WriteString("  for the session: " + visible(one.ForSession) + "\n")
	}
	fmt.Fprintf(&b, "  %s; without an answer denied at %s\n", visible(one.Reason), line(momentOf(one.Deadline)))
	return lines(b.String())
}

// DescribeRequest is what somebody decides by who answers a request of an agent, in whole lines in
// which a terminal acts on nothing.
func DescribeRequest(agent string, r protocol.PermissionRequest) string {
	return string(asked{agent, r}.describe())
}

// Answer is what a person answers to a request.
type Answer struct {
	Decision protocol.Decision // Deny also of one whose reason is asked for next
	Reason   string
	Asks     bool // for the reason
	Offered  bool // the request can be decided so
}

// AnswerOf reads a line that a person typed as the answer to a request: y, s, n, n and a reason, or r, which has the reason asked for. ok
// is false for one that is none of these.
func AnswerOf(line string, r protocol.PermissionRequest) (a Answer, ok bool) {
	word, reason, _ := strings.Cut(strings.TrimSpace(line), " ")
	a.Reason = strings.TrimSpace(reason)
	switch strings.ToLower(word) {
	case "y", "yes":
		a.Decision = protocol.AllowOnce
	case "s", "session":
		a.Decision = protocol.AllowSession
	case "n", "no":
		a.Decision = protocol.Deny
	case "r":
		a.Decision, a.Asks = protocol.Deny, true
	default:
		return Answer{}, false
	}
	a.Offered = slices.Contains(r.Decisions, a.Decision)
	return a, a.Reason == "" || a.Decision == protocol.Deny && !a.Asks
}

// visibleJSON is JSON, or a part of it, with nothing in it that a terminal would act on
// or hide: such a character is escaped as JSON does, so the value is the same.
func visibleJSON(text string) string {
	var out []byte
	for _, r := range text {
		if unicode.IsPrint(r) {
			out = utf8.AppendRune(out, r)
		} else {
			out = escaped(out, r)
		}
	}
	return string(out)
}

// visible is text with nothing in it that a terminal would act on or hide: a model
// wrote it, to somebody who decides by it.
func visible(text string) string {
	if strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return strconv.Quote(text)
	}
	return text
}

// allow is the verb that lets a call run.
type allow struct {
	session bool
	option  *string
}

func (v *allow) flags(f *pflag.FlagSet) {
	f.BoolVar(&v.session, "session", false, "also similar calls, for the rest of the session")
	f.Var(optional{&v.option}, "option", "one of the request's options, by its option_id, of an agent of another make")
}

func (v *allow) run(ctx context.Context, a *App, c *client.Client, args []string) error {
	p := api.RespondPermissionParams{Decision: protocol.AllowOnce, OptionID: v.option}
	if v.session {
		p.Decision = protocol.AllowSession
	}
	return respond(ctx, a, c, args, p, "allowed")
}

// deny is the verb that refuses a call.
type deny struct{ reason string }

func (v *deny) flags(f *pflag.FlagSet) {
	f.StringVar(&v.reason, "reason", "", "text for the model")
}

func (v *deny) run(ctx context.Context, a *App, c *client.Client, args []string) error {
	p := api.RespondPermissionParams{Decision: protocol.Deny}
	if v.reason != "" {
		p.Reason = &v.reason
	}
	return respond(ctx, a, c, args, p, "denied")
}

// respond answers the request that ends args, of the agent before it or, without one, whoever
// asks it: their ids are never used twice.
func respond(ctx context.Context, a *App, c *client.Client, args []string, p api.RespondPermissionParams, done string) error {
	agent, id := "", args[0]
	if len(args) > 1 {
		agent, id = args[0], args[1]
	}
	p.RequestID = id
	var unreached []string
	if agent == "" {
		all, machines, err := pending(ctx, c, "")
		if err != nil {
			return err
		}
		unreached = machines
		for _, one := range all {
			if one.RequestID == id {
				agent = one.AgentID
			}
		}
	}
	var responded api.RespondPermissionResult
	var err error
	if agent != "" {
		responded, err = client.Do(ctx, c, agent, api.RespondPermission, p)
	}
	switch kind := client.KindOf(err); {
	case agent == "", kind == api.KindPermissionRequestNotFound:
		return MissingAt(c, fmt.Errorf("no request %s waits: it was answered, ended or never there", id), unreached)
	case kind == api.KindInvalidParams && p.Decision == protocol.AllowSession && p.OptionID == nil:
		return fmt.Errorf("%s can be allowed once only: leave out --session", id)
	}
	return a.done(responded, err, "%s %s of %s\n", done, id, agent)
}

// tellWaiting says on stderr which calls of an agent wait for an approval, as soon as
// they do, and how to answer. What it cannot learn it does not tell: a send has an
// answer or an error of its own. The caller must call stop.
func tellWaiting(ctx context.Context, a *App, c *client.Client, agent string) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	watching.Go(func() {
		told := map[string]bool{} // by request id
		tell := func(request protocol.PermissionRequest) {
			if request.RequestID == "" || told[request.RequestID] {
				return
			}
			told[request.RequestID] = true
			noteRequest(a, asked{agent, request})
		}
		only := client.Filter{Types: []string{"permission_request"}, Agents: []string{agent}}
		for event, err := range c.FollowAll(ctx, "", only) {
			switch {
			case err != nil:
				return
			case event.Type == "open": // from here on events come; what waits already has none to come
				if now, err := client.Do(ctx, c, agent, api.GetPermissions, api.None{}); err == nil {
					for _, request := range now.Pending {
						tell(request)
					}
				}
			case event.Type == "permission_request":
				if one, err := event.Decode(); err == nil {
					if request, ok := one.(protocol.PermissionRequest); ok {
						tell(request)
					}
				}
			}
		}
	})
	return func() {
		cancel()
		watching.Wait()
	}
}

func noteRequest(a *App, one asked) {
	a.note("%s waits for an approval:\n  %s  %s", one.AgentID, one.describe(), a.howToAnswer(one))
}

// howToAnswer says how somebody answers a request by verbs.
func (a *App) howToAnswer(one asked) string {
	which := one.AgentID + " " + one.RequestID
	return fmt.Sprintf("answer with: %s, or %s", a.Call("allow "+which), a.Call("deny "+which))
}
