package protocol

// Limits bound what an agent, with all agents that it made, may use. Zero fields are no limit.
type Limits struct {
	// Tokens is the budget for the agent's life, of all kinds together.
	Tokens uint64 `json:"tokens"`
	// CostUSD is the budget in US dollars, for the agent's life. What models cost must be
	// known then.
	CostUSD float64 `json:"cost_usd"`
	// RequestsPerMinute and TokensPerMinute are rates: that much at once, and as much again
	// evenly over each minute.
	RequestsPerMinute uint64 `json:"requests_per_minute"`
	TokensPerMinute   uint64 `json:"tokens_per_minute"`

	ProcessLimits

	// Agents is how many agents there may be: it and all that it made.
	Agents uint64 `json:"agents"`
}

// ProcessLimits bound what each process of an agent may take, with all processes that come of
// it. Zero fields are no limit.
type ProcessLimits struct {
	MemoryBytes          uint64 `json:"memory_bytes"`       // of the whole tree
	Processes            uint64 `json:"processes"`          // processes and threads of the whole tree
	OpenFiles            uint64 `json:"open_files"`         // of each process
	CPUSeconds           uint64 `json:"cpu_s"`              // of the whole tree, since its start
	OutputBytesPerSecond uint64 `json:"output_bytes_per_s"` // of stdout
	TurnSeconds          uint64 `json:"turn_s"`             // of one turn
}

// Within is l where it is the tighter one, and outer elsewhere: what an agent may have that
// was made by one that may have outer.
func (l ProcessLimits) Within(outer ProcessLimits) ProcessLimits {
	return ProcessLimits{
		MemoryBytes:          Tighter(l.MemoryBytes, outer.MemoryBytes),
		Processes:            Tighter(l.Processes, outer.Processes),
		OpenFiles:            Tighter(l.OpenFiles, outer.OpenFiles),
		CPUSeconds:           Tighter(l.CPUSeconds, outer.CPUSeconds),
		OutputBytesPerSecond: Tighter(l.OutputBytesPerSecond, outer.OutputBytesPerSecond),
		TurnSeconds:          Tighter(l.TurnSeconds, outer.TurnSeconds),
	}
}

// Tighter is the limit that allows less. 0 is none.
func Tighter[N uint64 | float64](a, b N) N {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}
