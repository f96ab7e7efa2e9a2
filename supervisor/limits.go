package supervisor

import (
	"time"

	"nexus.internal/protocol"
)

// Limits bound what each incarnation of an agent may take. Who exceeds one is killed, which is
// a crash that names the limit (Exit.Limit), but for OpenFiles, where the call that goes too
// far fails, and TurnSeconds: it holds where PromptOptions.Timeout is 0, and no turn's may be
// more. A turn that exceeds it ends as one whose Timeout is over, with a *TurnLimitError.
type Limits = protocol.ProcessLimits

// timed is how long a turn of these options may run, 0 for as long as it takes,
// and what it ends with if it runs longer.
func timed(l Limits, o PromptOptions) (limit time.Duration, late error) {
	if most := time.Duration(l.TurnSeconds) * time.Second; most > 0 && (o.Timeout == 0 || o.Timeout > most) {
		return most, &TurnLimitError{TurnTime: most}
	}
	return o.Timeout, ErrTurnTimeout
}
