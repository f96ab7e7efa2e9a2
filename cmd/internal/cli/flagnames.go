package cli

import (
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"nexus.internal/bridge/api"
)

// ofParameter is the annotation of a flag that is called otherwise than what it sets: the parameters, as in place.node.
const ofParameter = "of the parameter"

// Sets says which parameters a flag sets that is called otherwise.
func Sets(f *pflag.FlagSet, flag string, parameters ...string) {
	f.Lookup(flag).Annotations = map[string][]string{ofParameter: parameters}
}

// parametersOf are the parameters that a flag sets.
func parametersOf(f *pflag.Flag) []string {
	if said := f.Annotations[ofParameter]; said != nil {
		return said
	}
	name := strings.ReplaceAll(f.Name, "-", "_")
	return []string{name, name + "_s"} // that of a time in seconds takes a unit
}

// flagFor is the flag of a verb for a parameter, one that was given before others; "" for none.
func flagFor(verb *cobra.Command, parameter string) (name string) {
	given := false
	verb.Flags().VisitAll(func(f *pflag.Flag) {
		if (name == "" || f.Changed && !given) && slices.Contains(parametersOf(f), parameter) {
			name, given = f.Name, f.Changed
		}
	})
	return name
}

// named are the verbs for the methods that a text names.
func (a *App) named(text string) (found []*cobra.Command) {
	for _, parts := range wireNames.FindAllStringSubmatch(text, -1) {
		if _, ok := api.Find(parts[1]); !ok {
			continue
		}
		use := wordsOf.FindString(verbOf(parts[1], verbs()))
		if verb, rest, err := a.root.Find(strings.Fields(use)); use != "" && err == nil && len(rest) == 0 {
			found = append(found, verb)
		}
	}
	return found
}

// invalidParameter matches how an error about a parameter begins.
var invalidParameter = regexp.MustCompile(`^Invalid parameter ([a-z_]+(?:[.[][^: ]*)?): `)

// loneName matches a name of a parameter or a method that stands alone, and is no part of a path or of what somebody gave.
var loneName = regexp.MustCompile(`(^|[ (])([a-z]+(?:_[a-z]+)+)($|[ ,;:)])`)

// inFlags names, in an error about a parameter, the flags by which it was given, as --node and --label for place: --home is another flag than
// the one for home. What else it names is told by flags and verbs, too.
func (a *App) inFlags(ran *cobra.Command, text string) string {
	found := invalidParameter.FindStringSubmatch(text)
	if found == nil || ran.Name() == "call" {
		return text
	}
	name, rest := found[1], strings.TrimPrefix(text, found[0])
	var flags []string
	ran.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
		about := func(parameter string) bool { return within(parameter, name) || within(name, parameter) }
		if f.Changed && slices.ContainsFunc(parametersOf(f), about) {
			flags = append(flags, "--"+f.Name)
		}
	})
	if len(flags) > 0 {
		name = strings.Join(flags, ", ")
	}
	return "Invalid parameter " + name + ": " + loneName.ReplaceAllStringFunc(rest, func(word string) string {
		parts := loneName.FindStringSubmatch(word)
		return parts[1] + a.inVerbs(ran, parts[2]) + parts[3]
	})
}

// within reports whether a parameter is another one, or in it.
func within(parameter, in string) bool {
	rest, ok := strings.CutPrefix(parameter, in)
	return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
}
