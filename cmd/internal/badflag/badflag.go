// Package badflag says what is wrong with a flag in words of its user, and not of
// the parser.
//
//	if err := flags.Parse(args); err != nil {
//		return errors.New(badflag.Problem(err, flags)) // --depth must be a whole number from 0 on, not "-3"
//	}
package badflag

import (
	"errors"
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/spf13/pflag"

	"nexus.internal/protocol/suggest"
)

// wants is what a flag of each type must be.
var wants = map[string]string{
	"int":      "a whole number",
	"uint16":   "a whole number from 0 to 65535",
	"uint32":   "a whole number from 0 to 4294967295",
	"uint64":   "a whole number from 0 on",
	"float64":  "a number",
	"duration": "a duration as in 90s",
	"bool":     "true or false",
	"level":    "debug, info, warn or error",
	"format":   "auto, text or json",
	"FORMAT":   "table, json, yaml or name",
}

// Problem is the text for an error of parsing flags: what a value must be, or the flag
// that was probably meant; else the text of the error itself.
func Problem(err error, flags *pflag.FlagSet) string {
	if unknown, ok := errors.AsType[*pflag.NotExistError](err); ok {
		names := []string{"help"} // which not every set has as a flag
		flags.VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
		if near := suggest.Nearest(unknown.GetSpecifiedName(), names); near != "" {
			return err.Error() + ": did you mean --" + near + "?"
		}
	}
	if invalid, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		if want := wants[invalid.GetFlag().Value.Type()]; want != "" {
			return fmt.Sprintf("--%s must be %s, not %q", invalid.GetFlag().Name, want, invalid.GetValue())
		}
		if invalid.GetFlag().Value.Type() == "stringToString" {
			name, _ := pflag.UnquoteUsage(invalid.GetFlag())
			return fmt.Sprintf("--%s must be %s, not %q", invalid.GetFlag().Name, name, invalid.GetValue())
		}
	}
	return err.Error()
}

// Text says which given flag has a text that cannot be meant; "" if none has. A text must be
// UTF-8. Only the flags in mayBeEmpty may be empty: elsewhere an empty text, mostly an unset
// variable of a script, would stand for a flag that was not given, and mean more.
func Text(flags *pflag.FlagSet, mayBeEmpty ...string) (problem string) {
	flags.Visit(func(f *pflag.Flag) {
		texts := []string{f.Value.String()}
		if list, ok := f.Value.(pflag.SliceValue); ok {
			texts = list.GetSlice()
		} else if f.Value.Type() != "string" {
			return
		}
		switch {
		case slices.Contains(mayBeEmpty, f.Name) && len(texts) == 1 && texts[0] == "":
		case len(texts) == 0 || slices.Equal(texts, []string{""}):
			problem = fmt.Sprintf("--%s is empty", f.Name)
		case slices.Contains(texts, ""):
			problem = fmt.Sprintf("--%s has an empty element", f.Name)
		case slices.ContainsFunc(texts, func(text string) bool { return !utf8.ValidString(text) }):
			problem = fmt.Sprintf("--%s is not UTF-8", f.Name)
		}
	})
	return problem
}
