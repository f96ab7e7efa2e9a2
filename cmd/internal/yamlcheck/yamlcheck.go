// Package yamlcheck is the checker of YAML for validate_code, a hidden verb of nexus: the library
// makes tables at each start, which would weigh on each agent if nexus-child had it.
//
//	app.Add(yamlcheck.Command(stdout)) // nexus check-yaml [FILE]
//
// It follows no alias, so that a few lines that mean gigabytes cost nothing. Everything here is
// safe for concurrent use.
package yamlcheck

import (
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"runtime/debug"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"
)

const (
	library   = "go.yaml.in/yaml/v3"
	maxFaults = 201 // as many as anybody reads (child/codecheck), and one that says that there are more
)

// Command is the verb: it writes a line for each fault of FILE, or without FILE its version.
func Command(out io.Writer) *cobra.Command {
	return &cobra.Command{
		Use: "check-yaml [FILE]", Hidden: true, Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				_, err := fmt.Fprintln(out, library, version())
				return err
			}
			text, err := os.ReadFile(args[0])
			if err != nil {
				return fmt.Errorf("read the code: %w", err)
			}
			faults := Faults(string(text))
			for _, f := range faults {
				if _, err := fmt.Fprintf(out, "%s:%d:%d: error: %s\n", args[0], f.Line, f.Column, f.Words); err != nil {
					return err
				}
			}
			if faults != nil {
				return errors.New("") // said
			}
			return nil
		},
	}
}

func version() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, module := range info.Deps {
			if module.Path == library {
				return module.Version
			}
		}
	}
	return "(its version is not known)"
}

// Fault is what is wrong, on one line. Line and Column count from 1; 0 is unknown.
type Fault struct {
	Line, Column int
	Words        string
}

// words are the library's: the line is that of the fault.
var words = regexp.MustCompile(`(?s)^yaml: (?:line (\d+): )?(.*)$`)

// Faults are the keys that stand twice in a mapping, and the first fault in the grammar of
// the documents, behind which nothing is read; nil if there are none.
func Faults(code string) (found []Fault) {
	documents := yaml.NewDecoder(strings.NewReader(code))
	for len(found) < maxFaults {
		var document yaml.Node
		err := documents.Decode(&document)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			f := Fault{Words: strings.Join(strings.Fields(err.Error()), " ")}
			if said := words.FindStringSubmatch(f.Words); said != nil {
				f.Line, _ = strconv.Atoi(said[1]) // digits or nothing
				f.Words = said[2]
			}
			return append(found, f)
		}
		found = twice(found, &document)
	}
	return found[:min(len(found), maxFaults)]
}

// twice appends the keys that stand twice in a mapping below node.
func twice(found []Fault, node *yaml.Node) []Fault {
	lines := map[string]int{}
	for i, child := range node.Content {
		if key := child.Tag + " " + child.Value; node.Kind == yaml.MappingNode && i%2 == 0 && child.Kind == yaml.ScalarNode && child.Tag != "!!merge" {
			if line, ok := lines[key]; ok {
				found = append(found, Fault{child.Line, child.Column, fmt.Sprintf("the key %.100q stands in line %d, too", child.Value, line)})
			} else {
				lines[key] = child.Line
			}
		}
		found = twice(found, child)
	}
	return found
}
