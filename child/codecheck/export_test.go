package codecheck

import "nexus.internal/protocol"

// Lines lets a test read the words of checkers that are not here.
func Lines(text, file string) []protocol.CodeDiagnostic { return readLines(text, file, true) }
