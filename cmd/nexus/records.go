package main

import (
	"nexus.internal/bridge/sessions"
	"nexus.internal/supervisor"
	"nexus.internal/supervisor/broker"
	"nexus.internal/supervisor/store"
)

// agentRecords are the records of agents as their sessions stand: what an agent
// without a session left is not that of a new one of its name.
type agentRecords struct {
	store.Store
	sessions *sessions.Catalogue
}

// Open implements [supervisor.Store].
func (r agentRecords) Open(agent string) (supervisor.Records, error) {
	return r.Store.Open(agent, !r.sessions.There(agent))
}

// Outcome is how a request to an agent that does not run ended; "" if that is not
// kept.
func (r agentRecords) Outcome(agent, request string) (supervisor.Outcome, error) {
	if !r.sessions.There(agent) {
		return "", nil
	}
	return r.Store.Outcome(agent, request)
}

// agentStore is what is kept of agents, on disk and by the broker.
type agentStore struct {
	agentRecords
	models *broker.Broker
}

// Forget implements [agents.Store].
func (s agentStore) Forget(agent string) { s.models.Forget(agent) }
