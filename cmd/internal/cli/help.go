package cli

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/spf13/cobra"

	"nexus.internal/bridge/api"
	"nexus.internal/cmd/internal/badflag"
	"nexus.internal/protocol/suggest"
)

// VerbsOnly is a usage error for an argument of a verb that takes verbs alone: it is
// none of them.
func VerbsOnly(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return unknownVerb(cmd, args[0])
	}
	return nil
}

// nexusVerbs are the verbs that nexus has and nexus-rpc has not.
var nexusVerbs = []string{"acp", "backup", "chaos", "cluster", "config", "doctor", "init", "logs", "probe", "restore", "serve", "top"}

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
	if !parent.HasParent() && slices.Contains([]string{"agents", "ls", "ps"}, name) { // elsewhere they are called so
		return Usage("unknown verb %q: did you mean %s list?", name, parent.CommandPath())
	}
	if name == "help" { // which the root alone has
		return Usage("unknown verb %q: did you mean %s help%s?", name, parent.Root().Name(), strings.TrimPrefix(parent.CommandPath(), parent.Root().Name()))
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
		withoutRefused(cmd, func() { show(cmd, args) })
	}
}

// prepare prepares cmd and all below it to be run. Each gets --help before cobra looks for
// the verb: else it takes VERB of --help VERB for the value of a flag that it does not know.
// Each refuses texts that cannot be meant before it looks at its arguments.
func (a *App) prepare(cmd *cobra.Command) {
	cmd.InitDefaultHelpFlag()
	rules := cmd.Args
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if err := checkFlags(cmd); err != nil {
			return err
		}
		if err := checkTexts(cmd, args); err != nil {
			return err
		}
		if rules != nil {
			if err := rules(cmd, args); err != nil {
				return err
			}
		}
		return a.checkFormat(cmd)
	}
	for _, verb := range cmd.Commands() {
		a.prepare(verb)
	}
}

// checkTexts is a usage error for a flag or an argument that is empty or not UTF-8. A system
// prompt may be empty. The name of a file may have any bytes.
func checkTexts(cmd *cobra.Command, args []string) error {
	if problem := badflag.Text(cmd.Flags(), "system"); problem != "" {
		return Usage("%s", problem)
	}
	for i, arg := range args {
		switch name := argumentName(cmd, len(args), i); {
		case arg == "":
			return Usage("%s is empty", name)
		case !utf8.ValidString(arg) && name != "FILE":
			return Usage("%s is not UTF-8", name)
		}
	}
	return nil
}

// argumentName is how the usage of cmd names argument i of n.
func argumentName(cmd *cobra.Command, n, i int) string {
	names := slices.DeleteFunc(strings.Fields(cmd.Use)[1:], func(word string) bool { return word == "[FLAGS]" })
	if n < len(names) { // the optional ones were left out
		names = slices.DeleteFunc(names, func(name string) bool { return name[0] == '[' })
	}
	if len(names) == 0 {
		return "an argument"
	}
	return strings.Trim(names[min(i, len(names)-1)], "[]…")
}

// wireNames matches names of methods and parameters, but for those of one word, which are words
// of a sentence too. A method of an agent may have its parameters and the agent behind it.
var wireNames = regexp.MustCompile(`([a-z]+(?:_[a-z]+)+)(?: (\{[^{}]*\}))?(?: of agent (\.?[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*))?`)

// stopping is how a suggestion names the method shutdown, whose name is a word of its own.
var stopping = regexp.MustCompile(`call shutdown of (?:the agent|agent ([A-Za-z0-9._-]+))`)

// inVerbs says what the server suggests as it is done here: by verbs and by flags of the verb
// that ran, and where there is no verb by a whole call. Call calls methods, as the server's
// words have them.
func (a *App) inVerbs(ran *cobra.Command, text string) string {
	if ran.Name() == "call" {
		return text
	}
	if id := ran.Flags().Lookup("request-id"); id != nil && !id.Changed { // then each has a new one
		text = strings.Replace(text, " with a new request_id", "", 1)
	}
	about := func(agent string) string { // the agent that is meant where none is named
		if args := ran.Flags().Args(); agent == "" && len(args) > 0 && agentFirst.MatchString(ran.Use) {
			agent = args[0]
		}
		return agent
	}
	return a.verbsFor(text, about, func(name string) (string, bool) {
		for _, verb := range append([]*cobra.Command{ran}, a.named(text)...) {
			if flag := flagFor(verb, name); flag != "" {
				return "--" + flag, true
			}
		}
		return "", false
	})
}

// InVerbs says by verbs what the server suggests, to who has something else for some names of methods and parameters.
func (a *App) InVerbs(text string, instead func(name string) (string, bool)) string {
	return a.verbsFor(text, func(agent string) string { return agent }, instead)
}

// verbsFor names verbs and whole calls for methods. about is the agent that is meant where that one is named, or none.
func (a *App) verbsFor(text string, about func(agent string) string, instead func(name string) (string, bool)) string {
	text = stopping.ReplaceAllStringFunc(text, func(found string) string {
		return "run " + a.Call("stop "+cmp.Or(about(stopping.FindStringSubmatch(found)[1]), "AGENT"))
	})
	return wireNames.ReplaceAllStringFunc(text, func(found string) string {
		parts := wireNames.FindStringSubmatch(found)
		name, params, agent := parts[1], parts[2], parts[3]
		if other, ok := instead(name); ok {
			return other + strings.TrimPrefix(found, name)
		}
		if m, ok := api.Find(name); ok {
			agent = about(agent)
			use := verbOf(name, verbs())
			setter := settersUse.FindStringSubmatch(use)
			if verb := wordsOf.FindString(use); verb != "" && setter == nil {
				if agent != "" && strings.HasPrefix(use, verb+" AGENT") {
					verb += " " + agent
				} else if text := onlyText(params); text != "" {
					return a.Call(verb + " " + text)
				}
				return a.Call(verb) + strings.TrimPrefix(found, name)
			}
			if setter != nil {
				return a.Call(setter[1] + " " + cmp.Or(agent, "AGENT") + " " + cmp.Or(onlyText(params), setter[2]))
			}
			return a.Call(wholeCall(m, agent, cmp.Or(params, limitNamed(text, shapes[name]))))
		}
		return found
	})
}

// settersUse is the use of a verb that shows something of an agent, or changes it to its last
// argument.
var settersUse = regexp.MustCompile(`^(\S+) AGENT \[([A-Z]+)\]`)

// onlyText is the text of an object's only member; "" of any other.
func onlyText(params string) string {
	var members map[string]string
	if json.Unmarshal([]byte(params), &members) != nil || len(members) != 1 {
		return ""
	}
	for _, text := range members {
		return text
	}
	return ""
}

// agentFirst is the use of a verb whose first argument is an agent.
var agentFirst = regexp.MustCompile(`^\S+ \[?AGENT\b`)

// shapes are the parameters of methods that suggestions name without any.
var shapes = map[string]string{
	"set_limits": `{"limits":{"NAME":N}}`, "set_settings": `{"settings":{"NAME":VALUE}}`,
}

// aLimit matches a limit in a suggestion.
var aLimit = regexp.MustCompile(`\blimits\.([a-z_]+)`)

// limitNamed is shape with the limit that text is about, if it is about one.
func limitNamed(text, shape string) string {
	if limit := aLimit.FindStringSubmatch(text); limit != nil {
		return strings.Replace(shape, "NAME", limit[1], 1)
	}
	return shape
}

// wholeCall is the verb call for a method; agent and params may be "".
func wholeCall(m api.Method, agent, params string) string {
	text := "call " + m.Name
	if m.Scope == api.Agent {
		text += " --agent " + cmp.Or(agent, "AGENT")
	}
	if params != "" {
		text += " '" + params + "'"
	}
	return text
}

// wordsOf matches the words of a verb, one or two, before its arguments.
var wordsOf = regexp.MustCompile(`^[a-z]+(?: [a-z]+)?\b`)

// verbOf is the use of the verb, of one word or two, for a method, without flags; "" for none.
func verbOf(method string, rows []row) string {
	for _, r := range rows {
		name, _, _ := strings.Cut(r.use, " ")
		if r.of.Name == method {
			return strings.TrimSuffix(r.use, " [FLAGS]")
		}
		if below := verbOf(method, r.verbs); below != "" {
			return name + " " + below
		}
	}
	return ""
}

// helpVerb is help VERB, the same as VERB --help.
func helpVerb(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use: "help [VERB]", Short: "Help about a verb", DisableFlagsInUseLine: true,
		RunE: func(_ *cobra.Command, args []string) error {
			verb, rest, err := root.Find(args)
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
