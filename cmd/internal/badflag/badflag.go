// Package badflag says what is wrong with a flag in words of its user, and not of
// the parser.
//
//	if err := flags.Parse(args); err != nil {
//		return errors.New(badflag.Problem(err)) // --depth must be a whole number from 0 on, not "-3"
//	}
package badflag

import (
	"errors"
	"fmt"

	"github.com/spf13/pflag"
)

// wants is what a flag of each type must be.
var wants = map[string]string{
	"int":      "a whole number",
	"uint32":   "a whole number from 0 to 4294967295",
	"uint64":   "a whole number from 0 on",
	"float64":  "a number",
	"duration": "a duration as in 90s",
	"bool":     "true or false",
	"level":    "debug, info, warn or error",
	"format":   "auto, text or json",
}

// Problem is the text for an error of pflag's; that of the error itself where it
// is about no value.
func Problem(err error) string {
	if invalid, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		if want := wants[invalid.GetFlag().Value.Type()]; want != "" {
			return fmt.Sprintf("--%s must be %s, not %q", invalid.GetFlag().Name, want, invalid.GetValue())
		}
	}
	return err.Error()
}
