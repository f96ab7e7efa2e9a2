package replicated

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"

	"nexus.internal/protocol/ratelimit"
	"nexus.internal/supervisor"
	"nexus.internal/supervisor/cluster"
)

// giveAgain is how long after an attempt to give an agent away, of which is not known what became of it, the next one follows.
const giveAgain = 300 * time.Millisecond

// Takers are the other machines that share the directory in which an agent of this machine works, whether they are up or not. If there are none, why says what binds
// the agent to this machine; it is "" while its files are not here yet, as it has just come, so that its directory is not known.
func (s *Store) Takers(name string) (machines []string, why string) {
	if isTemp(name) {
		return nil, "it is temporary"
	}
	place := s.o.Dirs.Place(name)
	cwd := place.Cwd
	switch claim, ok := s.node.Owner(name); {
	case cwd == "" && ok && s.notes.get(name).Epoch != claim.Epoch:
		return nil, ""
	case cwd == "":
		return nil, "where it works is not known"
	case !s.shares(cwd):
		return nil, fmt.Sprintf("it works in %s, which this machine does not share", cwd)
	}
	for _, m := range s.node.Machines() {
		if m.Name != s.node.Self() && shares(m.Shared, cwd) {
			machines = append(machines, m.Name)
		}
	}
	if len(machines) == 0 {
		why = fmt.Sprintf("it works in %s, which no other machine shares", cwd)
	}
	if at := creatorAt(s, place.Creator); at != "" && at != s.node.Self() && len(machines) > 0 {
		if !slices.Contains(machines, at) {
			return nil, fmt.Sprintf("it follows %s, which has created it, to %s alone, and that machine does not share %s", place.Creator, at, cwd)
		}
		machines = []string{at}
	}
	return machines, why
}

// creatorAt is the machine that has the agent that has created another one; "" if no machine has it, or there is none.
func creatorAt(s *Store, creator string) string {
	if creator == "" {
		return ""
	}
	claim, _ := s.node.Owner(creator)
	return claim.Machine
}

// HandOver makes an agent of this machine that of another one, once a majority has what its files have now. Its records are not open. After an error it is still
// this machine's, unless the claim says otherwise: what another machine has then, is Taken.
func (s *Store) HandOver(ctx context.Context, name, to string) error {
	a := s.of(name)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.open.Load() {
		return fmt.Errorf("hand over %s: its records are open", name)
	}
	ctx, cancel := context.WithTimeout(ctx, acceptPatience)
	defer cancel()
	if err := s.settle(ctx, name, a); err != nil {
		return fmt.Errorf("hand over %s: %w", name, s.reason(err))
	}
	for {
		err := s.node.Give(ctx, name, to, a.epoch)
		switch {
		case err == nil:
			s.log.Info("an agent is handed over", zap.String("agent", name), zap.String("machine", to))
			return nil
		case errors.Is(err, cluster.ErrClaimed):
			return fmt.Errorf("hand over %s: %w", name, supervisor.ErrMoved)
		case ratelimit.Sleep(ctx, giveAgain) != nil:
			return fmt.Errorf("hand over %s: %w: %w", name, supervisor.ErrNoMajority, err)
		}
	}
}
