package check

// Lines lets a test read the words of checkers that are not here.
func Lines(text, file string) []Diagnostic { return readLines(text, file, true) }
