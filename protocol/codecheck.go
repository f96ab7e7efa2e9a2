package protocol

// What nexus-child check reads and writes, each one JSON object (SPEC §6.7).
type (
	// CodeCheck is code that is to be looked at.
	CodeCheck struct {
		Code     string `json:"code"`
		Language string `json:"language"`
		// Rules are those that the checker is to apply, by its own names for them.
		Rules []string `json:"rules" wire:"default"`
		// Cache is a directory in which a checker may keep what it compiled. One that needs
		// it makes it, and does without where it cannot; "" for none.
		Cache string `json:"cache" wire:"default"`
		// Server is the path of the server's program, which has a checker of its own; "" for none.
		Server string `json:"server" wire:"default"`
	}

	// CodeAnswer is the answer to a CodeCheck: a result, or else why there is none.
	CodeAnswer struct {
		Result  *CodeResult `json:"result,omitzero"`
		Failure *CodeError  `json:"failure,omitzero"`
	}

	// CodeResult is what a checker found.
	CodeResult struct {
		// Valid says that there is no diagnostic of severity error.
		Valid       bool             `json:"valid"`
		Checker     CodeChecker      `json:"checker"`
		Diagnostics []CodeDiagnostic `json:"diagnostics"`
		// Truncated says that there were more diagnostics.
		Truncated bool `json:"truncated,omitzero" wire:"default"`
		// UncheckedRules are those that the checker cannot be asked for.
		UncheckedRules []string `json:"unchecked_rules"`
	}

	// CodeChecker is what looked at the code.
	CodeChecker struct {
		Name    string   `json:"name"`
		Version string   `json:"version"` // the line of what it says of itself; "" if it says nothing
		Command []string `json:"command"` // [] for what is built in
	}

	// CodeDiagnostic is one fault. Line and Column count from 1; 0 is unknown.
	CodeDiagnostic struct {
		Line     int    `json:"line"`
		Column   int    `json:"column"`
		Severity string `json:"severity" enum:"error,warning"`
		Rule     string `json:"rule,omitzero" wire:"default"`
		Message  string `json:"message"`
	}

	// CodeError is the error that says why code was not checked.
	CodeError struct {
		Kind    CodeFailureKind `json:"kind"`
		Message string          `json:"message"`
	}
)

// CodeFailureKind is why code was not checked.
type CodeFailureKind string

// The kinds of a CodeError.
const (
	UnknownLanguage CodeFailureKind = "language" // no checker knows the language
	MissingChecker  CodeFailureKind = "missing"  // no checker for it is on the machine
	CheckerFailed   CodeFailureKind = "failed"   // the checker did not do its work
)

func (f *CodeError) Error() string { return f.Message }
