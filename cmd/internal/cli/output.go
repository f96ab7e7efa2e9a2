package cli

import (
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/tidwall/gjson"
)

// Formats of --output.
const (
	formatTable = "table" // for people: what a verb prints without the flag
	formatJSON  = "json"  // a value a line
	formatYAML  = "yaml"  // a document for each value
	formatName  = "name"  // the names of what is listed or shown, a line each
)

// formatFlag is the value of --output, and of --json, which is --output json.
type formatFlag struct {
	*printer
	json bool
}

func (f formatFlag) Type() string {
	if f.json {
		return "bool"
	}
	return "FORMAT"
}

func (formatFlag) String() string { return "" } // --help says the default in words

// IsBoolFlag has --json go without a value.
func (f formatFlag) IsBoolFlag() bool { return f.json }

func (f formatFlag) Set(text string) error {
	switch {
	case f.json:
		is, err := strconv.ParseBool(text)
		if is {
			f.format = formatJSON
		}
		return err
	case !slices.Contains([]string{formatTable, formatJSON, formatYAML, formatName}, text):
		return errors.New("want table, json, yaml or name")
	}
	f.format = text
	return nil
}

// Structured reports whether what a verb has to say is wanted as values, which PrintValue
// writes, and not as text for people.
func (p *printer) Structured() bool { return p.format != "" && p.format != formatTable }

// errorsAsJSON reports whether an error is wanted as JSON, which is YAML, too. The flag may stand
// behind a wrong one, where nothing has read it.
func (p *printer) errorsAsJSON(args []string, usage bool) bool {
	if p.format != "" || !usage {
		return p.format == formatJSON || p.format == formatYAML
	}
	for i, arg := range args {
		if arg == "-o" || arg == "--output" {
			arg = "-o" + strings.Join(args[i+1:min(i+2, len(args))], "")
		}
		switch arg {
		case "--json", "-ojson", "-o=json", "--output=json", "-oyaml", "-o=yaml", "--output=yaml":
			return true
		}
	}
	return false
}

// namesOf is the annotation of a command with the path (of gjson) to the names in its values.
const namesOf = "names"

// Named is a command whose values have names at path, as gjson has it, for --output name.
func Named(cmd *cobra.Command, path string) *cobra.Command {
	if path != "" {
		cmd.Annotations = map[string]string{namesOf: path}
	}
	return cmd
}

// checkFormat has the printer know where the names in the values of cmd are. It is a usage error
// to ask for them where there are none, and to ask for two formats.
func (p *printer) checkFormat(cmd *cobra.Command) error {
	if flags := cmd.Flags(); flags.Changed("json") && flags.Changed("output") {
		return Usage("--json and --output exclude each other")
	}
	if p.names = cmd.Annotations[namesOf]; p.format == formatName && p.names == "" {
		return Usage("%s has nothing to print with --output name: use table, json or yaml", cmd.CommandPath())
	}
	return nil
}

// printNames writes the names in a value, given as JSON, a line each.
func (p *printer) printNames(value []byte) (err error) {
	gjson.GetBytes(value, p.names).ForEach(func(_, name gjson.Result) bool {
		err = p.Printf("%s\n", name.String())
		return err == nil
	})
	return err
}
