package supervisor

// Wait says that an agent's turn waits for another agent.
type Wait struct {
	From string `json:"from"`
	To   string `json:"to"`
}

// Wait records waits that end with what another machine does, until end is called: a circle of agents of several machines is seen as one
// of this machine's is. The error is a *CycleError; then none is recorded.
func (s *Supervisor) Wait(all ...Wait) (end func(), err error) {
	for i, w := range all {
		if err := s.waits.begin(w.From, w.To); err != nil {
			s.unwait(all[:i])
			return nil, err
		}
	}
	return func() { s.unwait(all) }, nil
}

func (s *Supervisor) unwait(all []Wait) {
	for _, w := range all {
		s.waits.end(w.From, w.To)
	}
}

// WaitsFor are the waits for an agent, and for those that wait for it, as far as they are known here.
func (s *Supervisor) WaitsFor(agent string) []Wait { return s.waits.before(agent) }

// before are the waits that lead to an agent, each once.
func (w *waitGraph) before(agent string) (all []Wait) {
	w.mu.Lock()
	defer w.mu.Unlock()
	seen := map[string]bool{agent: true}
	for next := []string{agent}; len(next) > 0; next = next[1:] {
		for from, to := range w.of {
			if to[next[0]] == 0 {
				continue
			}
			all = append(all, Wait{from, next[0]})
			if !seen[from] {
				seen[from] = true
				next = append(next, from)
			}
		}
	}
	return all
}
