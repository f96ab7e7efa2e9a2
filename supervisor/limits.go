package supervisor

import "time"

// Limits bound what each incarnation of an agent may take, with all processes
// that come of it. Zero fields are no limit. Who exceeds one is killed, which is a
// crash that names the limit (Exit.Limit), but for OpenFiles, where the call that
// goes too far fails, and TurnTime.
type Limits struct {
	MemoryBytes          int64 // of the whole tree
	Processes            int64 // processes and threads of the whole tree
	OpenFiles            int64 // of each process
	CPUSeconds           int64 // of the whole tree, since its start
	OutputBytesPerSecond int64 // of the child's stdout
	// TurnTime is how long a turn may run: what holds where PromptOptions.Timeout
	// is 0, and no turn's may be more. It ends as one whose Timeout is over, with a
	// *TurnLimitError.
	TurnTime time.Duration
}

// timed is how long a turn of these options may run, 0 for as long as it takes,
// and what it ends with if it runs longer.
func (l Limits) timed(o PromptOptions) (limit time.Duration, late error) {
	if l.TurnTime > 0 && (o.Timeout == 0 || o.Timeout > l.TurnTime) {
		return l.TurnTime, &TurnLimitError{TurnTime: l.TurnTime}
	}
	return o.Timeout, ErrTurnTimeout
}

// Within is l where it is the tighter one, and outer elsewhere: what an agent may
// have that was made by one that may have outer.
func (l Limits) Within(outer Limits) Limits {
	return Limits{
		MemoryBytes:          Tighter(l.MemoryBytes, outer.MemoryBytes),
		Processes:            Tighter(l.Processes, outer.Processes),
		OpenFiles:            Tighter(l.OpenFiles, outer.OpenFiles),
		CPUSeconds:           Tighter(l.CPUSeconds, outer.CPUSeconds),
		OutputBytesPerSecond: Tighter(l.OutputBytesPerSecond, outer.OutputBytesPerSecond),
		TurnTime:             Tighter(l.TurnTime, outer.TurnTime),
	}
}

// Tighter is the limit that allows less. 0 is none.
func Tighter[T int | int64 | uint64 | time.Duration](a, b T) T {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}
