// Package codecheck has code looked at by the checkers that the machine has, without
// running it.
//
//	err := codecheck.Serve(ctx, stdin, stdout, environ) // one request, one answer
//
// A request names a language and has the code; the answer says which checker
// looked at it and what it found. The checker runs as a tool's program does
// (child/sandbox): it may write nothing but to a directory of its own, which is
// removed after, and has no network. It never executes the code.
//
// What it refuses: a language that it does not know, and to call code valid that
// nothing has looked at. Functions are safe for concurrent use and start no
// goroutine that outlives them. The contract is SPEC.md §6.7.
package codecheck
