package child

import (
	"context"
	"fmt"
	"time"

	"nexus.internal/protocol"
)

const (
	maxLookups    = 4 // lists of models that are fetched at once; a further one is refused
	lookupTimeout = 10 * time.Second
)

// listModels may ask the network, so it does not hold up the reader.
func (s *server) listModels(c protocol.GetAvailableModels) {
	s.mu.Lock()
	var err error
	switch {
	case s.closed:
		err = errShutdown
	case s.lookups >= maxLookups:
		err = fmt.Errorf("%d lists of models are being fetched already", maxLookups)
	default:
		s.lookups++
		s.backgroundTasks.Add(1) // under the lock, so that nobody waits for side yet
	}
	s.mu.Unlock()
	if err != nil {
		s.refuse(c, err)
		return
	}
	go func() {
		defer s.backgroundTasks.Done()
		ctx, cancel := context.WithTimeout(s.ctx, lookupTimeout)
		defer cancel()
		models, err := s.Models.List(ctx)
		s.mu.Lock()
		s.lookups--
		s.mu.Unlock()
		if err != nil {
			s.refuse(c, err)
			return
		}
		s.out.post(protocol.SuccessResponse(c, protocol.AvailableModels{Models: models}))
	}()
}
