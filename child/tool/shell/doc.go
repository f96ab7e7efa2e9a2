// Package shell is the tool that runs commands.
//
//	t := shell.New(shell.Options{Dir: dir, Rules: rules, OutputDir: dir2})
//	result, err := t.Run(ctx, tool.Call{Input: jsontext.Value(`{"command":"make test"}`)})
//	programs := shell.Describe("cd src && go test ./... > log") // cd, go, >
//
// Every command has a shell of its own, so that nothing of one call is left to
// the next but files. It runs by package sandbox, under the rules it is given.
// How a command ended is always a result, with is_error where its exit status is
// not 0; an error is a call that could not be carried out. The tool is safe for
// concurrent use; a call has no goroutine that outlives it.
//
// What it refuses: to show binary output; to run a command that must be confined
// where the kernel cannot. The contract is SPEC.md §4.4.
package shell
