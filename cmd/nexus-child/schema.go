package main

import (
	"fmt"
	"io"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"nexus.internal/protocol/schema"
)

// runSchema is nexus-child schema: it prints the JSON Schema of the frames (SPEC §3.2).
// It returns the exit status.
func runSchema(args []string, stdout, errs io.Writer) int {
	if len(args) > 0 {
		fmt.Fprintf(errs, "nexus-child: schema takes no arguments\nTry nexus-child --help.\n")
		return 2
	}
	text, err := json.Marshal(schema.Child(), jsontext.WithIndent("  "))
	if err == nil {
		_, err = stdout.Write(append(text, '\n'))
	}
	return printError(errs, "schema", err)
}
