package bridge

// Waiting is how many requests hold the name of an agent or wait for it.
func (s *Server) Waiting(id string) int {
	return s.agents.Waiting(id)
}
