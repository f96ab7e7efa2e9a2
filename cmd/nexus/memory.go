package main

import (
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"

	"go.uber.org/zap"

	"nexus.internal/bridge/sessions"
	"nexus.internal/supervisor"
	"nexus.internal/supervisor/eventlog"
	"nexus.internal/supervisor/outcomes"
)

// memoryOf opens what agents remember beside their sessions (SPEC §5.3, §5.6).
// What an agent without a session left is not that of a new one of its name. The
// function is safe for concurrent use, for different agents.
func memoryOf(catalogue *sessions.Catalogue, events *eventlog.Writer, log *zap.Logger) func(id string) (supervisor.Memory, error) {
	return func(id string) (supervisor.Memory, error) {
		outcomesPath, eventsDir := catalogue.OutcomesPath(id), catalogue.EventsDir(id)
		if !catalogue.There(id) {
			if err := errors.Join(os.RemoveAll(outcomesPath), os.RemoveAll(eventsDir)); err != nil {
				return supervisor.Memory{}, fmt.Errorf("remove what another agent %s left: %w", id, err)
			}
		}
		log := log.With(zap.String("agent", id))
		for path, regular := range map[string]bool{outcomesPath: true, eventsDir: false} {
			if err := setAside(path, regular, log); err != nil {
				return supervisor.Memory{}, err
			}
		}
		ended, err := outcomes.Open(outcomesPath, outcomes.Options{Session: catalogue.Path(id), Log: log})
		if err != nil {
			return supervisor.Memory{}, err
		}
		happened, err := events.Open(eventsDir)
		if err != nil {
			return supervisor.Memory{}, errors.Join(err, ended.Close())
		}
		return supervisor.Memory{Events: happened, Outcomes: ended}, nil
	}
}

// outcomeOf looks up how a prompt of an agent that does not run ended; "" if that
// is not remembered. The function is safe for concurrent use, for different agents.
func outcomeOf(catalogue *sessions.Catalogue) func(agent, id string) (supervisor.Outcome, error) {
	return func(agent, id string) (supervisor.Outcome, error) {
		if !catalogue.There(agent) {
			return "", nil
		}
		return outcomes.Look(catalogue.OutcomesPath(agent), catalogue.Path(agent), id)
	}
}

// eventHistory is what is on disk of agents' events.
type eventHistory struct{ catalogue *sessions.Catalogue }

// After implements [events.History].
func (h eventHistory) After(agent string, number uint64) iter.Seq2[supervisor.Event, error] {
	return eventlog.Read(h.catalogue.EventsDir(agent), number)
}

// setAside renames what is no regular file of a possible size, or no directory, in the place of one:
// PATH.damaged, over what is there already.
func setAside(path string, regular bool, log *zap.Logger) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && (regular && info.Mode().IsRegular() && info.Size() <= outcomes.MaxFile || !regular && info.IsDir()) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look for what the agent remembers: %w", err)
	}
	aside := path + ".damaged"
	log.Warn("set aside: not what it should be", zap.String("path", path), zap.String("to", aside))
	if err := errors.Join(os.RemoveAll(aside), os.Rename(path, aside)); err != nil {
		return fmt.Errorf("set aside what is in the way: %w", err)
	}
	return nil
}
